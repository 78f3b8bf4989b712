"""Operators of a data set that make batches of a number of elements or of a cost, and take them apart again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import flag, word
from aiostream_data.errors import PlanError
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, at_least

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset
    from aiostream_data.plan.costs import TooLarge

T = TypeVar("T")
A = TypeVar("A")
S = TypeVar("S", bound=np.generic)


class BatchOperators(Generic[T]):
    """Operators that stack elements, and that give their rows. None of them does any I/O."""

    plan: Node

    if TYPE_CHECKING:

        def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Dataset[Any]: ...

    # Only Any matches Never: elements of unknown type give batches of unknown type, not the first that fits.
    @overload
    def batch(self: BatchOperators[Never], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[Any]: ...
    @overload
    def batch(
        self: BatchOperators[dict[A, Never]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[dict[A, Any]]: ...
    @overload
    def batch(
        self: BatchOperators[int], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[np.int64]]: ...
    @overload
    def batch(
        self: BatchOperators[float], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[np.float64]]: ...
    @overload
    def batch(
        self: BatchOperators[bytes], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[np.object_]]: ...
    @overload
    def batch(
        self: BatchOperators[str], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[np.object_]]: ...
    @overload
    def batch(
        self: BatchOperators[NDArray[S]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[S]]: ...
    @overload
    def batch(
        self: BatchOperators[dict[A, NDArray[S]]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[dict[A, NDArray[S]]]: ...
    @overload
    def batch(
        self: BatchOperators[tuple[NDArray[S], int]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[S], NDArray[np.int64]]]: ...
    @overload
    def batch(self, batch_size: int, *, drop_remainder: bool = ...) -> Dataset[T]: ...
    @overload
    def batch(
        self,
        batch_size: int | None = ...,
        *,
        max_cost: int,
        cost: Callable[..., int] | str | None = ...,
        padded: bool = ...,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        on_too_large: TooLarge = ...,
        drop_remainder: bool = ...,
    ) -> Dataset[Any]: ...
    def batch(
        self,
        batch_size: int | None = None,
        *,
        max_cost: int | None = None,
        cost: Callable[..., int] | str | None = None,
        padded: bool = True,
        padded_shapes: Any = None,
        padding_values: Any = None,
        on_too_large: TooLarge = "raise",
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Stack ``batch_size`` consecutive elements (tf.data ``batch``), or as many as ``max_cost`` allows.

        Numbers and arrays become arrays with the rows first; bytes and str become object arrays; VarLen
        and Ragged features a :class:`RaggedArray`. Batches own their memory.

        With ``max_cost`` a batch takes elements until the next one would bring it above: for models whose
        memory depends on how much a batch holds rather than on its rows. It is padded as by
        :meth:`padded_batch`, and costs what padding makes of it: rows times the largest cost among them.

        Args:
            batch_size: Elements in a batch; with ``max_cost`` the most of them, and any number without.
            max_cost: What a batch may cost, in the unit of ``cost``. Never exceeded, except by
                ``on_too_large="alone"``.
            cost: Gives the cost of an element, an integer of at least 0 (a tuple is unpacked into arguments);
                or the name of the leaf whose length it is, which costs nothing per element. By default the
                only leaf that has a length. Of a leaf that ``padded_shapes`` gives a length, that length.
            padded: False stacks elements as a batch without ``max_cost`` does, and a batch costs the sum.
            padded_shapes, padding_values: As for :meth:`padded_batch`.
            on_too_large: What becomes of an element that alone costs more: "raise"; "skip" leaves it out,
                and counts it as dropped; "alone" makes a batch of it that costs more than it may.
            drop_remainder: Leave out a last batch that is not full; with ``max_cost``, one that could have
                taken another element of cost 1.

        Raises:
            PlanError: An argument makes no sense; nothing tells what an element costs.

        Raises (when iterated):
            BatchShapeError: Shapes or structures differ; names both and both records.
            BatchCostError: An element alone costs more than a batch may; names the record.
            PlanError: ``cost`` gave no integer of at least 0; a note names the record.
        """
        for name, value in (("drop_remainder", drop_remainder), ("padded", padded)):
            flag(name, value)
        rows = None if batch_size is None else at_least("batch_size", batch_size, 1)
        if max_cost is not None:
            from aiostream_data.plan.costs import CostBatch

            return self._then(
                CostBatch,
                "batch",
                max_cost=_checked_limit(max_cost, on_too_large),
                cost=_checked_cost(self.plan, cost, padded, padded_shapes, padding_values),
                padded=padded,
                padded_shapes=padded_shapes,
                padding_values=padding_values,
                on_too_large=on_too_large,
                batch_size=rows,
                drop_remainder=drop_remainder,
            )
        if rows is None:
            raise PlanError("batch() needs a batch_size, or a max_cost")
        is_for_costs = any(given is not None for given in (cost, padded_shapes, padding_values))
        if is_for_costs or not isinstance(on_too_large, str) or on_too_large != "raise":
            raise PlanError("cost, shapes, values and on_too_large are for batches with a max_cost; see padded_batch()")
        return self._then(op.Batch, "batch", batch_size=rows, drop_remainder=drop_remainder)

    def unbatch(self) -> Dataset[Any]:
        """Give the rows of every element's first axis (tf.data ``unbatch``)."""
        return self._then(op.Unbatch, "unbatch")


def _checked_limit(max_cost: Any, on_too_large: str) -> int:
    from aiostream_data.plan.costs import TOO_LARGE
    from aiostream_data.transforms.costed import CostOrder

    word("on_too_large", on_too_large, TOO_LARGE)
    return CostOrder(at_least("max_cost", max_cost, 1)).max_cost


def _checked_cost(node: Node, cost: Any, padded: bool, shapes: Any, values: Any) -> Callable[..., int] | str | None:
    """Return what tells the cost: where nothing was given, the name of the only leaf with a length, if it is known."""
    from aiostream_data.dataset.element_checks import check_length_of, check_padding, the_only_length

    if not padded and (shapes is not None or values is not None):
        raise PlanError("padded=False leaves no use for padded_shapes and padding_values")
    check_padding(node, shapes, values)
    if cost is None:
        return the_only_length(node)
    check_length_of(node, "cost", cost)
    return cost  # type: ignore[no-any-return]
