"""Node of the operator ``aggregate``, and the interface of the user's aggregator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from aiostream_data.plan.base import Operator
from aiostream_data.plan.written import call_arguments

T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)


class Aggregator(Protocol[T_contra, U_co]):
    """Object that collects elements, and emits zero or more outputs for each element.

    An aggregator can also have the methods ``state()`` and ``restore(state)``; see :meth:`Dataset.aggregate`.
    """

    def add(self, element: T_contra, /) -> Iterable[U_co]:
        """Take the next element. Return the outputs that are complete."""

    def flush(self) -> Iterable[U_co]:
        """Return the last outputs, at the end of the input."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Operator):
    """Node that emits the outputs of an aggregator, which receives each element in order.

    Attributes:
        factory: Function that returns a new aggregator for each pass over the input.
    """

    factory: Callable[[], Aggregator[Any, Any]]

    def detail(self) -> str:
        return call_arguments(self.factory)
