"""Serial steps that ride on the hop of the stage before them.

How this works. shuffle, batch and unbatch take rows strictly one chunk after another and need no event
loop, so a task, a channel and a hop for each would be pure cost. They are *steps*: objects with
``push`` and ``finish``. The steps that follow a stage make up its *tail*, which works in the same hop
in which the stage made the chunk, on the same thread, while the rows are still in its cache. Only one
hop at a time may push into a tail; its owner, the stage's outlet, sees to that. A run that is cut short does not wait
for the hop in progress: whichever of the two ends last lets go of what the steps hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter, thread_time
from typing import Any, ClassVar, Protocol, TypeVar

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.root_cause import own_error
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Position, State
from aiostream_data.errors import BatchShapeError, CardinalityError
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.makers import made_by
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk


@dataclass
class Step:
    """Running form of one plan node that takes chunks one after another. Used from worker threads.

    Attributes:
        rows_in: Rows it was given; ``rows_accounted`` says what became of them.
        dropped: Rows it left out on purpose.
        makes_own_rows: What it hands on stands in memory that nobody else has.
        input_is_own: The step before it makes its own rows.
        before: Place of what it takes its chunks from.
    """

    makes_own_rows: ClassVar[bool] = False

    node: Any
    context: RunContext
    counters: StageCounters
    before: Position | None = None
    rows_in: int = 0
    rows_out: int = 0
    dropped: int = 0
    input_is_own: bool = False

    def push(self, chunk: Chunk) -> Chunk | None:
        """Take a chunk in, and return what can be handed on now.

        Raises:
            PartlyDone: It failed on some row; what it can hand on of the rows before is ``done``.
        """
        raise NotImplementedError

    def finish(self) -> Iterator[Chunk]:
        """Yield what is left when no chunk follows."""
        return iter(())

    def close(self) -> None:
        """Release what is held; also called when the run was cut short. Idempotent."""

    def nbytes_of(self, chunk: Chunk) -> int:
        """Return the bytes of a chunk that this step made, as cheaply as it can."""
        return chunk_nbytes(chunk)

    # -- its place, as that of a stage

    @property
    def source(self) -> Position:
        """Place of what it takes its chunks from."""
        assert self.before is not None
        return self.before

    def at(self, rows: int, book: BookWriter) -> State:
        """Return from where what follows the first ``rows`` rows of this run can be made. Safe from any thread."""
        raise NotImplementedError

    def forget(self, rows: int) -> None:
        """Discard history before row ``rows``. Safe from any thread."""
        raise NotImplementedError

    def resume(self, state: State) -> State:
        """Go to the place of a state, before anything is pushed; return the state of the input."""
        raise NotImplementedError

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        """Check the part of a state that :meth:`at` wrote; see :meth:`.Stage.schema`."""
        yield place.of_input(place.part, rows=place.rows)

    async def refill(self) -> None:
        """Get back, on the loop, the rows that were held when the state was taken; before anything is pushed."""

    async def recall(self, lineage: Lineage) -> Chunk:
        """Return rows that this step has given, made again; nothing is pushed into it for that."""
        return await self.context.recall(self.node.input, lineage)

    def rows_accounted(self) -> int | None:
        """Return the input rows that the output stands for, or None where no such sum exists."""
        return self.rows_out


class DoneRows(Protocol):
    """Result of row-wise stages, in one hop; a dataclass.

    Attributes:
        chunk: The rows that were made.
        nbytes: Their bytes.
        failure: The error that followed them, if any.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def chunk(self) -> Chunk:
        """See above."""

    @property
    def nbytes(self) -> int:
        """See above."""

    @property
    def failure(self) -> BaseException | None:
        """See above."""


D = TypeVar("D", bound=DoneRows)


@dataclass(frozen=True, slots=True)
class Joined:
    """What a stage's work and its tail gave, in one hop.

    Attributes:
        rows, nbytes: Of the chunk that the stage itself made.
        busy_s, cpu_s: What the stage's work alone took.
        chunk, chunk_nbytes: What came out of the tail; None when it holds everything back.
        failure: What the work or a step failed with behind that.
    """

    rows: int
    nbytes: int
    busy_s: float
    cpu_s: float
    chunk: Chunk | None
    chunk_nbytes: int
    failure: BaseException | None = None


@dataclass
class Tail:
    """Steps in order.

    Attributes:
        failure: What a step failed with; what the steps made of the rows before was returned. Nothing is pushed then.
    """

    steps: Sequence[Step]
    failure: BaseException | None = None
    _left: Iterator[Chunk] | None = field(default=None)
    _idle_since: float = field(default_factory=perf_counter)
    _nbytes: int = 0
    _in_use: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def __post_init__(self) -> None:
        for before, after in pairwise(self.steps):
            after.input_is_own = before.makes_own_rows

    async def refill(self) -> None:
        """Get back what the steps held when the state was taken with which the run was opened."""
        for step in self.steps:
            await step.refill()

    def join(self, work: Callable[..., Chunk], *args: Any) -> Joined:
        """Do a stage's work and push what it made."""
        wall, cpu = perf_counter(), thread_time()
        chunk = work(*args)
        busy_s, cpu_s = perf_counter() - wall, thread_time() - cpu
        rows, nbytes = len(chunk), chunk_nbytes(chunk)
        out = self.push(chunk) if rows else None
        return Joined(rows, nbytes, busy_s, cpu_s, out, self._nbytes, self.failure)

    def join_rows(self, work: Callable[..., D], *args: Any) -> tuple[D, Joined]:
        """Do the work of row-wise stages and push what they made; the account of the former keeps no rows."""
        done = work(*args)
        rows = len(done.chunk)
        out = self.push(done.chunk) if rows else None
        self.failure = self.failure or done.failure
        # The stages' times are in their account.
        joined = Joined(rows, done.nbytes, 0.0, 0.0, out, self._nbytes, self.failure)
        return replace(done, chunk=done.chunk.slice(0, 0)), joined

    def push(self, chunk: Chunk) -> Chunk | None:
        """Take a chunk through all steps; return what comes out, if anything does."""
        waited_s = perf_counter() - self._idle_since
        for step in self.steps:
            step.counters.input_wait_s += waited_s
        with self._used():
            out = None if self._closed else self._through(chunk, 0)
        self._idle_since = perf_counter()
        return out

    def pushed(self, chunk: Chunk) -> tuple[Chunk | None, int, BaseException | None]:
        """Like :meth:`push`, with the bytes of what came out, and what a step failed with behind that."""
        return self.push(chunk), self._nbytes, self.failure

    def rest(self) -> tuple[Chunk | None, int, BaseException | None]:
        """Return the next chunk that is left when the input has ended, as :meth:`pushed`; None after the last."""
        if self._left is None:
            self._left = self._finish()
        with self._used():
            return next(self._left, None), self._nbytes, self.failure

    def close(self) -> None:
        """Release what the steps hold: now, or at the end of the hop in progress. Idempotent; from any thread."""
        self._closed = True
        if self._in_use.acquire(blocking=False):
            try:
                for step in self.steps:
                    step.close()
            finally:
                self._in_use.release()

    @contextmanager
    def _used(self) -> Iterator[None]:
        try:
            with self._in_use:
                yield
        finally:
            if self._closed:
                self.close()

    def check_account(self) -> None:
        """Raise CardinalityError unless every step's rows add up."""
        for step in self.steps:
            rows_out = step.rows_accounted()
            if rows_out is not None and step.rows_in != rows_out + step.dropped:
                raise CardinalityError(
                    f"stage {step.node.label} received {step.rows_in} rows but accounts for {rows_out} + "
                    f"{step.dropped} left out; this is a bug in aiostream_data, and the epoch cannot be trusted"
                )

    def _finish(self) -> Iterator[Chunk]:
        for number, step in enumerate(self.steps):
            left = step.finish()
            while self.failure is None and (chunk := self._timed(step, next, left, None)) is not None:
                out = self._through(chunk, number + 1)
                if out is not None:
                    yield out

    def _through(self, chunk: Chunk, first: int) -> Chunk | None:
        out: Chunk | None = chunk
        for step in self.steps[first:]:
            if out is None or not len(out):
                return None
            step.rows_in += len(out)
            step.counters.rows_in += len(out)
            out = self._timed(step, step.push, out)
        return out if out is not None and len(out) else None

    def _timed(self, step: Step, work: Callable[..., Chunk | None], *args: Any) -> Chunk | None:
        counters, dropped = step.counters, step.dropped
        wall, cpu = perf_counter(), thread_time()
        try:
            out = work(*args)
        except BaseException as error:  # noqa: BLE001 - raised when the rows before were handed on
            self.failure = own_error(error)  # of earlier rows than what another step has failed on
            self.failure.add_note(step.node.noted)
            if isinstance(self.failure, BatchShapeError) and (maker := made_by(step.node)) is not None:
                self.failure.add_note(maker)
            empty_frames(self.failure)  # it may be kept, and must not keep rows
            out = error.done if isinstance(error, PartlyDone) else None
        finally:
            counters.busy_s += perf_counter() - wall
            counters.cpu_s += thread_time() - cpu
        counters.dropped += step.dropped - dropped
        if out is not None:
            self._nbytes = step.nbytes_of(out)
            step.rows_out += len(out)
            counters.rows += len(out)
            counters.chunks += 1
            counters.nbytes += self._nbytes
        return out
