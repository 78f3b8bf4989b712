"""Base class with the plan of a dataset, and access to the plans of datasets passed as arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.validate import check_extends

_FRAMES_PER_OPERATOR: Final = 4
"""Plans are trees that recursive functions visit. Python limits the depth of their calls."""

NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


class Chain:
    """A chain of operators.

    Attributes:
        plan: Root node of the plan, a tree of immutable nodes.
        carried_options: Arguments of ``open()`` that the dataset passes on; see ``Dataset.with_options``.

    Raises:
        PlanError: The plan has too many operators one after another.
    """

    def __init__(self, plan: Node, carried_options: Mapping[str, Any] = NO_OPTIONS) -> None:
        if not isinstance(plan, Node):
            raise ArgumentTypeError(
                f"cannot make a Dataset from {type(plan).__name__}. "
                "Use a constructor, such as Dataset.from_tensor_slices()."
            )
        if plan.depth > (most := sys.getrecursionlimit() // _FRAMES_PER_OPERATOR):
            raise PlanError(
                f"the pipeline has more than {most} operators one after another. Pass many datasets to one call, as in "
                "Dataset.concatenate(*datasets), join functions into one, or call sys.setrecursionlimit()"
            )
        self.plan = plan
        self.carried_options = MappingProxyType(dict(carried_options)) if carried_options else NO_OPTIONS

    def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Any:
        """Return the dataset of the node that ``kind`` makes of this plan and of the arguments."""
        raise NotImplementedError


def plan_of(dataset: Any, operation: str) -> Node:
    """Return the plan of a dataset passed as an argument to the operator ``operation``.

    Raises:
        PlanError: The argument is not a dataset, or its plan cannot be extended.
    """
    if not isinstance(dataset, Chain):
        raise PlanError(f"{operation}() needs datasets, got {type(dataset).__name__}")
    check_extends(dataset.plan, operation)
    return dataset.plan
