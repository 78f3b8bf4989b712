"""Call user functions for the rows of a chunk on a worker, and name the failing row in errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import starmap
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._engine.calls.argument_errors import as_arguments, misfit
from aiostream_data._engine.calls.batched_results import result_columns
from aiostream_data._engine.calls.rng_calls import calls_with_rng
from aiostream_data._engine.calls.running_calls import noted_as_running
from aiostream_data._engine.calls.view_arguments import Views, elements_with_views, views_of
from aiostream_data._engine.calls.worker_state import StateKey, state_of_worker
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.element_summary import note_row, summary
from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.row_keys import Stable
from aiostream_data.executors.failure import workable
from aiostream_data.failing.policies import Handling
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.batch_leaves import batch_element
from aiostream_data.transforms.collate import as_stackable, collate_results, stack

RAISE = Handling()

Describe = Callable[[RowIds, int], str]
"""Function that returns the name of a row's record, such as "URL record N", for the arguments (ids, row)."""


@dataclass(frozen=True)
class UserFunction:
    """User function with its calling convention and its error policy.

    Plain tuples are unpacked into positional arguments, as in tf.data. Dicts and NamedTuples are passed as one
    argument.

    Attributes:
        describe: Function that returns the name of a record, for error notes.
        rng_key: If set, pass ``rng``, a random generator that depends on the seed, the epoch and the record.
        stable: Function that returns a row name that is equal in every run; required with ``rng_key``.
        handling: Error policy for rows on which the function fails.
        init: Function that creates the worker's state, passed to the user function as ``state``; None for no state.
        state_key: Key of the worker's state; required with ``init``.
        pause: Function that sleeps for the given number of seconds before a retry.
        takes_batches: True if elements are batches; error messages then explain that the function received a batch.
        pool: Pool of memory for large ``bytes``; None in other processes.
    """

    function: Callable[..., Any]
    describe: Describe
    rng_key: np.uint64 | None = None
    stable: Stable | None = None
    handling: Handling = RAISE
    init: Callable[[], Any] | None = None
    state_key: StateKey | None = None
    pause: Callable[[float], Any] = time.sleep
    takes_batches: bool = False
    pool: LendsMemory | None = field(default=None, compare=False, repr=False)

    @property
    def is_plain(self) -> bool:
        """True if the user function takes only the element, and every error ends the stream."""
        return self.rng_key is None and self.init is None and not self.handling.interferes

    @cached_property
    def views(self) -> Views:
        """Arguments that the user function receives as memoryviews instead of bytes."""
        return views_of(self.function)

    @property
    def by_name(self) -> list[str]:
        """Names of the keyword arguments that the function receives in addition to the element."""
        return ["rng"] * (self.rng_key is not None) + ["state"] * (self.init is not None)

    def elements(self, chunk: Chunk) -> list[Any]:
        """Return the elements of a chunk as the function receives them."""
        return elements_with_views(chunk, self.views, self.pool)

    def results(self, chunk: Chunk) -> list[Any]:
        """Call the function for every row. Return the results of all rows in row order.

        Raises:
            BaseException: The exception of the user function, with notes that name the function and the record.
        """
        return call_rows(replace(self, handling=RAISE), chunk).checked()

    def call_with(self) -> Callable[..., Any]:
        """Return the user function, bound to this worker's state if the function has a ``state`` parameter.

        Raises:
            BaseException: The exception raised by ``init``, with a note.
        """
        if self.init is None or self.state_key is None:
            return self.function
        return partial(self.function, state=state_of_worker(self.state_key, self.init))

    def calls(self, function: Callable[..., Any], left: Iterator[Any], chunk: Chunk) -> Iterator[Any]:
        """Return an iterator over the results for ``left``, the remaining elements of a chunk."""
        if self.rng_key is not None:
            assert self.stable is not None
            ids = chunk.ids.slice(len(chunk) - length_hint(left), len(chunk))
            return calls_with_rng(function, left, ids, self.rng_key, self.stable)
        if isinstance(chunk, Columns):
            return starmap(function, left) if chunk.structure.kind == "tuple" else map(function, left)
        kinds = set(map(type, chunk.values))
        if tuple not in kinds:
            return map(function, left)
        return starmap(function, left if len(kinds) == 1 else map(as_arguments, left))

    def note(self, error: BaseException, chunk: Chunk, row: int) -> None:
        """Add notes to an error that name the function and the record."""
        name = function_name(self.function)
        if 0 <= row < len(chunk):
            note_row(error, name, chunk, row, self.describe, is_batch=self.takes_batches)
        else:
            error.add_note(f"function: {name}")


@dataclass
class CallResults:
    """Results of a function for the rows of a chunk.

    Attributes:
        values: Results in row order, including replacement values.
        lost: Indices of the skipped rows, in ascending order.
        failed: Skipped and replaced rows, in ascending order.
        retries: Number of retries.
        failure: Error of the next row, if the error policy can neither skip nor replace the row.
    """

    values: list[Any] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    retries: int = 0
    failure: BaseException | None = None

    @property
    def rows(self) -> int:
        """Number of rows processed before ``failure``, including skipped and replaced rows."""
        return len(self.values) + len(self.lost)

    def kept(self) -> NDArray[np.int64] | None:
        """Return the indices of the rows that have a result, or None if all rows have a result."""
        if not self.lost and self.failure is None:
            return None
        return np.delete(np.arange(self.rows), self.lost)

    def checked(self) -> list[Any]:
        """Return the results, or raise the stored failure."""
        if self.failure is not None:
            raise self.failure
        return self.values


def call_rows(user: UserFunction, chunk: Chunk) -> CallResults:
    """Call the function for every row, and apply the error policy to rows on which the function fails.

    Stop at the first error that the error policy does not handle, and return this error as ``failure``.
    """
    elements = user.elements(chunk)
    function = user.call_with()
    results = CallResults()
    left = iter(elements)
    with noted_as_running(user.function, user.describe, chunk.ids, left):
        while True:
            try:
                results.values.extend(user.calls(function, left, chunk))  # keeps the results before an error
                if results.rows == len(elements):
                    return results
                raise StopIteration("raised by the function")  # a StopIteration of the function ended the iterator
            except BaseException as error:  # noqa: BLE001 - raised later, or counted
                row = len(elements) - length_hint(left) - 1
                _handle(user, function, chunk, elements, row, workable(error), results)
            if results.failure is not None:
                return results


def _handle(
    user: UserFunction,
    function: Callable[..., Any],
    chunk: Chunk,
    elements: Sequence[Any],
    row: int,
    error: BaseException,
    results: CallResults,
) -> None:
    """Retry, skip or replace a failed row.

    If the error policy allows neither a retry nor a skip nor a replacement, store the error as the failure.
    """
    handling = user.handling
    if (refused := misfit(error, user.function, elements[row], user.by_name)) is not None:
        user.note(refused, chunk, row)
        results.failure = refused
        return
    for attempt in range(handling.retries if isinstance(error, Exception) else 0):
        user.pause(handling.pause_s(attempt))
        results.retries += 1
        try:
            results.values.append(_one_call(user, function, chunk, row))
        except BaseException as again:  # noqa: BLE001 - raised again, or counted
            error = workable(again)
        else:
            return
    user.note(error, chunk, row)
    if handling.kind == "raise" or not isinstance(error, Exception):
        results.failure = error
        return
    results.failed.append(Failed.of(error, chunk, row, summary(elements[row]), handling.kind))
    if handling.kind == "replace":
        results.values.append(handling.value)
    else:
        results.lost.append(row)


def _one_call(user: UserFunction, function: Callable[..., Any], chunk: Chunk, row: int) -> Any:
    single = chunk.slice(row, row + 1)
    found = list(user.calls(function, iter(user.elements(single)), single))
    if not found:
        raise StopIteration("raised by the function")
    return found[0]


def map_numbers(user: UserFunction, chunk: Columns, numbers: NDArray[Any]) -> Chunk:
    """Call the function, in native code, for each number of a one-dimensional array.

    Raises:
        PartlyDone: The user function failed on a row. The error's ``done`` attribute stores the results of the rows
            before the failing row.
    """
    row = np.zeros(1, np.int64)
    left = iter(())
    with noted_as_running(user.function, user.describe, chunk.ids, left, row):
        results, done, odd, raised = _native.scalar_results(user.function, numbers, row)
    if raised is not None:
        error = misfit(raised, user.function, chunk.element(done)) or workable(raised)
        user.note(error, chunk, done)
        raise PartlyDone(Columns(LEAF, (results[:done],), chunk.ids.slice(0, done)), error)
    if done == len(chunk):
        return Columns(LEAF, (results,), chunk.ids)
    rest = call_rows(user, chunk.slice(done + 1, len(chunk)))
    values = [*results[:done].tolist(), odd, *rest.values]
    mapped = collate_results(values, chunk.ids.slice(0, len(values)))
    if rest.failure is not None:
        raise PartlyDone(mapped, rest.failure)
    return mapped


def map_batched(user: UserFunction, chunk: Chunk) -> Columns:
    """Call the function once with all rows of the chunk as arrays, with rows on the first axis.

    Raises:
        PlanError: The function returned a value that is not a dense array, or arrays with a different number of rows.
    """
    argument = _as_arrays(chunk)
    function = user.call_with()
    try:
        with noted_as_running(user.function, user.describe, chunk.ids, iter(())):
            result = function(*argument) if type(argument) is tuple else function(argument)
    except BaseException as raised:  # noqa: BLE001 - raised again
        error = misfit(raised, user.function, argument, user.by_name) or workable(raised)
        error.add_note(f"function: {function_name(user.function)}")
        error.add_note(f"records: {user.describe(chunk.ids, 0)} to {user.describe(chunk.ids, len(chunk) - 1)}")
        raise error  # noqa: B904 - it is the same, or stands for it
    return result_columns(result, chunk.ids, user.function)


def _as_arrays(chunk: Chunk) -> Any:
    """Stack the rows into one element made of arrays, with rows on the first axis."""
    chunk = as_stackable(chunk)
    if isinstance(chunk, Items):
        return stack(chunk.values, _numbered)
    return batch_element(chunk, _numbered)


def _numbered(row: int) -> str:
    return f"row {row}"


_UNNAMED = re.compile(r"\brow (-?\d+(?::-?\d+)+)(?= to row -?\d+:|, the first of |$)")


def _unnamed(ids: RowIds, row: int) -> str:
    return "row " + ":".join(str(number) for pair in ids.pairs_of(row) for number in pair)


def without_origins(user: UserFunction) -> UserFunction:
    """Return a copy of ``user`` without the references that cannot be sent to another process."""
    return replace(user, describe=_unnamed, stable=None, pause=time.sleep, pool=None)


def name_records(error: BaseException, origins: Origins) -> None:
    """Replace the row ids that worker processes wrote into an error's notes with record names."""

    def name_of(found: re.Match[str]) -> str:
        numbers = [int(number) for number in found[1].split(":")]
        return origins.name_of(list(zip(numbers[::2], numbers[1::2], strict=True)))

    notes = getattr(error, "__notes__", [])
    notes[:] = [_UNNAMED.sub(name_of, note) if note.startswith("record") else note for note in notes]
