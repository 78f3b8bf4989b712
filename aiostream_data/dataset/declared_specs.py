"""Validated ``spec=`` and ``signature=`` arguments."""

from __future__ import annotations

from typing import Any

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.rows.structure import flatten


def spec_call(operator: str, spec: Any) -> dict[str, Any]:
    """Return the fields of the plan node that checks elements of an operator against ``spec``.

    Raises:
        PlanError: ``spec`` is not a structure of ArraySpec.
    """
    check_spec("spec", spec)
    structure, leaves = flatten(spec, ArraySpec)
    return {"structure": structure, "leaves": tuple(leaves), "operator": operator}


def check_spec(name: str, spec: Any) -> None:
    """Check that an argument is a structure of ArraySpec.

    Raises:
        PlanError: A leaf is not an ArraySpec.
    """
    _, leaves = flatten(spec, ArraySpec)
    if not all(isinstance(leaf, ArraySpec) for leaf in leaves):
        raise PlanError(f"{name} must be a structure of ArraySpec, got {shown(spec)}")
