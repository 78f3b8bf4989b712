"""Operators that group elements by key, as methods of ``Dataset``."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiostream_data.arguments import shown
from aiostream_data.dataset import functions
from aiostream_data.dataset.chain import Chain
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.plan.base import at_least

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset

U = TypeVar("U")


class KeyedGroups(Chain):
    """Operators that put elements with equal keys together.

    A key can be any hashable value, such as an int, a str or a tuple. All keys of a dataset must have an order.
    """

    def group_by_window(
        self,
        key: Callable[..., Any],
        reduce: Callable[[Any, Dataset[Any]], Dataset[U] | Iterable[U] | AsyncIterable[U]],
        window_size: int | None = None,
        *,
        window_size_fn: Callable[[Any], int] | None = None,
    ) -> Dataset[U]:
        """Collect windows of elements with equal keys, and emit what a function makes of them (tf.data
        ``group_by_window``).

        When a key has ``window_size`` elements, the operator calls ``reduce(key, window)`` and emits all elements of
        the result. At the end, the operator does this for all incomplete windows, in the ascending order of their keys.
        A key is not limited to int64, in contrast to tf.data::

            dataset.group_by_window(lambda row: row["length"] // 8, lambda key, window: window.batch(32), 32)

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            reduce: Plain function of the key and of a dataset of the window's elements. It returns a dataset or any
                iterable. Arrays of the window are read-only.
            window_size: Number of elements in a window. Pass either ``window_size`` or ``window_size_fn``.
            window_size_fn: Function that returns the window size of a key. The loader calls it once for each key.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: A key is not hashable or has no order, or ``window_size_fn`` did not return an integer of at
                least 1. A note on the error names the record.
            MemoryBudgetError: The elements of incomplete windows do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import KeyedWindows, ReduceWindows

        name = "group_by_window"
        _check(name, key)
        if (window_size is None) == (window_size_fn is None):
            raise PlanError("group_by_window() needs exactly one of window_size and window_size_fn")
        if window_size_fn is not None:
            _check(name, window_size_fn)
        call = functions.interleave_call(name, reduce, None)
        windows = self._then(
            KeyedWindows,
            name,
            key=key,
            window_size=None if window_size is None else at_least("window_size", window_size, 1),
            window_size_fn=window_size_fn,
            dataset=type(self),
        )
        made: Dataset[U] = windows._then(ReduceWindows, name, function=call["function"])
        return made

    def split_by(
        self,
        key: Callable[..., Any],
        branches: Mapping[Any, Callable[[Dataset[Any]], Dataset[Any]]],
        window_size: int | None = None,
        *,
        default: Callable[[Dataset[Any]], Dataset[Any]] | None = None,
    ) -> Dataset[Any]:
        """Send each element to the branch of its key, and emit the results of all branches. tf.data has no such
        operator.

        A branch is a chain of operators. The operator applies the chain to each window of ``window_size`` elements of
        the branch, as :meth:`group_by_window` does. Operators such as ``batch`` and ``shuffle`` therefore begin again
        with each window. Results are emitted when the window of a branch is full; at the end, the incomplete windows
        follow in the order of ``branches``::

            chains = {"image": lambda rows: rows.map(crop), "text": lambda rows: rows.map(tokenize).batch(8)}
            dataset.split_by(lambda row: row["kind"], chains, window_size=64)

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            branches: Chain of each key: a function from dataset to dataset.
            window_size: Number of elements in a window. With None, a window contains all elements of the branch: the
                results are emitted at the end, branch by branch, and all elements must fit into the memory limit. With
                1, the results are in the order of the input, but each element costs a call of its chain.
            default: Chain for the elements with all other keys, as the last branch. None raises an error for them.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: An element has a key without a branch. A note on the error names the record.
            MemoryBudgetError: The elements of incomplete windows do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import Branches, ReduceWindows, SplitWindows

        name = "split_by"
        _check(name, key)
        if not isinstance(branches, Mapping):
            raise ArgumentTypeError(f"split_by() needs a dict from key to chain, got {shown(branches)}")
        if not branches:
            raise PlanError("split_by() needs at least one branch, got an empty dict")
        chains = (*branches.values(), *(() if default is None else (default,)))
        for chain in chains:
            _check(name, chain)
        windows = self._then(
            SplitWindows,
            name,
            key=key,
            branches=tuple(branches),
            has_default=default is not None,
            window_size=None if window_size is None else at_least("window_size", window_size, 1),
            window_size_fn=None,
            dataset=type(self),
        )
        made: Dataset[Any] = windows._then(ReduceWindows, name, function=Branches(tuple(branches), chains), name=name)
        return made

    def group_by_reducer(
        self,
        key: Callable[..., Any],
        init: Callable[[Any], Any],
        reduce: Callable[[Any, Any], Any],
        finalize: Callable[[Any], U] | None = None,
    ) -> Dataset[U]:
        """Reduce all elements with equal keys to one result per key (tf.data ``group_by_reducer``).

        The operator emits ``finalize(state)`` of each key at the end of its input, in the ascending order of the keys.
        A resumed run reads the input again from its beginning.

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            init: Function of the key that returns the first state. The state can be any object.
            reduce: Function ``(state, element)`` that returns the next state. The element is passed as it is.
            finalize: Function of the last state that returns the result; None to emit the state.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: A key is not hashable or has no order. A note on the error names the record.
            MemoryBudgetError: The states of all keys do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import GroupByReducer

        name = "group_by_reducer"
        for function in (key, init, reduce, *(() if finalize is None else (finalize,))):
            _check(name, function)
        made: Dataset[U] = self._then(GroupByReducer, name, key=key, init=init, reduce=reduce, finalize=finalize)
        return made


def _check(operator: str, function: Any) -> None:
    """Check that a function is a plain function with at least one positional parameter."""
    from aiostream_data.dataset.callables import check_gives_a_value, check_takes_an_element

    functions.check_callable(operator, function)
    functions.refuse_coroutine(operator, function)
    check_gives_a_value(operator, function)
    check_takes_an_element(operator, function)
