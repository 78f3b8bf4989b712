"""Steps: operators without a task of their own, which run in the same call on a worker as the previous stage.

How this works. The operators shuffle, batch and unbatch process one chunk after another and need no event loop. A
separate task, channel and hop (call on a worker) for each of these operators would only cost time. These operators are
*steps*: objects with the methods ``push`` and ``finish``. The steps after a stage form the *tail* of the stage. The
tail runs in the same hop that creates the chunk, while the rows are in the processor's cache. A source with several
open shards creates the next chunk in another hop meanwhile (:meth:`.Outlet.send_ahead`). The outlet of the stage
ensures that only one hop at a time pushes chunks into the tail. A cancelled run does not wait for the hop in progress.
After a cancellation, the rows in the steps' buffers are released when the hop in progress ends.
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
    """Step: runtime object of a plan node that processes chunks one after another. Runs on worker threads.

    Attributes:
        rows_in: Number of rows received.
        dropped: Number of rows that the step dropped intentionally.
        makes_own_rows: True if the emitted rows use memory that no other object uses.
        input_is_own: True if the input rows use memory that no other object uses.
        before: Position of the previous stage or step in the stream.
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
        """Process a chunk. Return the output rows that are ready, or None.

        Raises:
            PartlyDone: A row failed. The error's ``done`` attribute contains the output for the rows before the failing
                row.
        """
        raise NotImplementedError

    def finish(self) -> Iterator[Chunk]:
        """Yield the rows that are still buffered when the input ends."""
        return iter(())

    def close(self) -> None:
        """Release all rows that this step buffers. The method is also called after a cancelled run. Idempotent."""

    def nbytes_of(self, chunk: Chunk) -> int:
        """Return the size in bytes of a chunk that this step emitted; subclasses may use a cheaper estimate."""
        return chunk_nbytes(chunk)

    # -- the position of a step, with the interface of a stage

    @property
    def source(self) -> Position:
        """Position of the previous stage or step in the stream."""
        assert self.before is not None
        return self.before

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state from which the stream can resume after its first ``rows`` rows. Safe from any thread."""
        raise NotImplementedError

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``, which no state will need. Safe from any thread."""
        raise NotImplementedError

    def resume(self, state: State) -> State:
        """Restore a saved state before the first call of :meth:`push`. Return the saved state of the step's input."""
        raise NotImplementedError

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        """Validate the part of a state that :meth:`at` wrote; see :meth:`.Stage.schema`."""
        yield place.of_input(place.part, rows=place.rows)

    async def refill(self) -> None:
        """Recompute the rows that this step buffered when the state was saved.

        The event loop calls this method before the first :meth:`push`.
        """

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute rows that this step emitted earlier, without pushing rows into the step."""
        return await self.context.recall(self.node.input, lineage)

    def rows_accounted(self) -> int | None:
        """Return the number of input rows used for the output so far, or None if the number cannot be computed."""
        return self.rows_out


class RowForRowStep(Step):
    """Base class of steps that emit one row for each input row. The saved state is that of the input."""

    def at(self, rows: int, book: BookWriter) -> State:
        return self.source.at(rows, book)

    def forget(self, rows: int) -> None:
        self.source.forget(rows)

    def resume(self, state: State) -> State:
        return state


class DoneRows(Protocol):
    """Interface of the result of one hop (call on a worker) that runs row-wise operators.

    Implementations are dataclasses.

    Attributes:
        chunk: The output rows.
        nbytes: Size of the output rows in bytes.
        failure: Error of the row after the last row of ``chunk``, if any.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def chunk(self) -> Chunk:
        """The output rows."""

    @property
    def nbytes(self) -> int:
        """Size of the output rows in bytes."""

    @property
    def failure(self) -> BaseException | None:
        """Error of the row after the last row of ``chunk``, if any."""


D = TypeVar("D", bound=DoneRows)


@dataclass(frozen=True, slots=True)
class Joined:
    """Result of one hop (call on a worker) that runs a stage's work and the steps after the stage.

    Attributes:
        rows, nbytes: Number of rows that the stage created, and their size in bytes.
        busy_s, cpu_s: Wall and CPU seconds of the stage's own work, excluding the steps.
        chunk, chunk_nbytes: Output of the last step and its size in bytes; ``chunk`` is None if no row was emitted.
        failure: Error of the stage's work or of a step; raised after ``chunk`` is sent.
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
    """Steps that run after a stage, in stream order.

    Attributes:
        failure: Error of a step, or None. After an error, the tail accepts no more chunks; the output for earlier rows
            has already been returned.
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
        """Recompute the rows that the steps buffered when the state was saved."""
        for step in self.steps:
            await step.refill()

    def join(self, work: Callable[..., Chunk], *args: Any) -> Joined:
        """Run a stage's work and push the resulting chunk through the steps."""
        wall, cpu = perf_counter(), thread_time()
        chunk = work(*args)
        busy_s, cpu_s = perf_counter() - wall, thread_time() - cpu
        rows, nbytes = len(chunk), chunk_nbytes(chunk)
        out = self.push(chunk) if rows else None
        return Joined(rows, nbytes, busy_s, cpu_s, out, self._nbytes, self.failure)

    def join_rows(self, work: Callable[..., D], *args: Any) -> tuple[D, Joined]:
        """Run the work of row-wise operators and push the resulting rows through the steps.

        Return the result of the work without its rows, and the result of the hop (call on a worker).
        """
        done = work(*args)
        rows = len(done.chunk)
        out = self.push(done.chunk) if rows else None
        self.failure = self.failure or done.failure
        # `done` has the times of the stages.
        joined = Joined(rows, done.nbytes, 0.0, 0.0, out, self._nbytes, self.failure)
        return replace(done, chunk=done.chunk.slice(0, 0)), joined

    def push(self, chunk: Chunk) -> Chunk | None:
        """Push a chunk of rows through all steps. Return the output of the last step, or None."""
        waited_s = perf_counter() - self._idle_since
        for step in self.steps:
            step.counters.input_wait_s += waited_s
        with self._used():
            out = None if self._closed else self._through(chunk, 0)
        self._idle_since = perf_counter()
        return out

    def pushed(self, chunk: Chunk) -> tuple[Chunk | None, int, BaseException | None]:
        """Push a chunk through all steps. Return the output, its size in bytes, and the error of a step, if any."""
        return self.push(chunk), self._nbytes, self.failure

    def rest(self) -> tuple[Chunk | None, int, BaseException | None]:
        """Return the next buffered chunk after the end of the input, as a tuple like the one from :meth:`pushed`."""
        if self._left is None:
            self._left = self._finish()
        with self._used():
            return next(self._left, None), self._nbytes, self.failure

    def close(self) -> None:
        """Release the rows that all steps buffer, immediately or when the hop (call on a worker) in progress ends.

        Idempotent; safe from any thread.
        """
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
        """Raise CardinalityError unless each step's received rows equal its emitted plus dropped rows."""
        for step in self.steps:
            rows_out = step.rows_accounted()
            if rows_out is not None and step.rows_in != rows_out + step.dropped:
                raise CardinalityError(
                    f"stage {step.node.label} received {step.rows_in} rows but accounts for {rows_out} + "
                    f"{step.dropped} left out. This is a bug in aiostream_data: report it, and discard this epoch."
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
            self.failure = own_error(error)  # this error is of earlier rows than a failure of the step before
            self.failure.add_note(step.node.noted)
            if isinstance(self.failure, BatchShapeError) and (maker := made_by(step.node)) is not None:
                self.failure.add_note(maker)
            empty_frames(self.failure)  # the error may be stored and must not keep rows in memory
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
