"""Validated arguments of ``rejection_resample``, as fields of its plan node."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data.arguments import several
from aiostream_data.dataset.functions import checked_function
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import seed_of
from aiostream_data.weights import Vector, vector_of

_NAME = "rejection_resample"


def resample_call(function: Any, target: Any, initial: Any, seed: Any) -> dict[str, Any]:
    """Return the fields of the plan node of ``rejection_resample``.

    Raises:
        StageBuildError: The function is a generator function, or cannot be called with an element.
        PlanError: The function is not callable, or the distributions are invalid.
    """
    checked_function(_NAME, function)
    wanted = _distribution("target", target, None)
    known = None if initial is None else _distribution("initial", initial, len(wanted))
    if known is not None:
        _check_reachable(wanted, known)
    return {"class_fn": function, "target": wanted, "initial": known, "seed": seed_of(seed)}


def _check_reachable(target: Vector, initial: Vector) -> None:
    for number, (wanted, known) in enumerate(zip(target, initial, strict=True)):
        if wanted > known == 0:
            raise PlanError(
                f"{_NAME}(): class {number} has the weight {wanted:g} in target, but 0 in initial. Pass a positive "
                "weight, or initial=None to estimate the distribution."
            )


def _distribution(argument: str, weights: Any, classes: int | None) -> Vector:
    listed = weights.tolist() if isinstance(weights, np.ndarray) else weights
    given = several(argument, listed, "one weight for each class")
    if not given or (classes is not None and len(given) != classes):
        expected = "one weight for each class" if classes is None else f"as many weights as target ({classes})"
        raise PlanError(f"{argument} must have {expected}, got {len(given)}")
    return vector_of(given, tuple(map(str, range(len(given)))), argument)
