"""Counters of one stage (rows, bytes and times) and of the consumer. The engine updates them."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

ON_DISK: Final = "disk_nbytes"
PEAK_ON_DISK: Final = "disk_peak_nbytes"
"""Keys in ``extra``: current and peak size in bytes of the files that store a stage's rows."""

FETCH: Final = "fetch_s"
"""Key in ``extra`` of a source stage: total duration of its reads, in seconds."""

FETCHES: Final = "fetches"
FETCHED: Final = "fetched_nbytes"
"""Keys in ``extra`` of a source stage: number of reads, and number of bytes read."""

BYTES_WAIT: Final = "bytes_wait_s"
"""Key in ``extra`` of a source stage: total time that its readers waited for bytes, in seconds."""

SHARDS: Final = "shards"
"""Key in ``extra`` of a source: number of shards in an epoch."""

TRANSFER: Final = "transfer_s"
"""Key in ``extra``: time to send rows to worker processes and back, in seconds, without the work in these processes."""

GIL_LOOKS: Final = "gil_looks"
GIL_TAKEN: Final = "gil_taken"
"""Keys in ``extra``: number of GIL probes by the event loop while functions ran, and number of probes that found the
GIL taken."""

SLOW_ROWS: Final = "slow_rows_s"
"""Key in ``extra``: part of ``busy_s`` spent on rows that took far longer than the other rows."""

PREEMPTIONS: Final = "preemptions"
"""Key in ``extra``: number of times that the system interrupted threads of the stage to run other threads."""

CORE_HAD: Final = "core_had_s"
CORE_WAITED: Final = "core_waited_s"
"""Keys in ``extra``: seconds that sampled calls used a CPU core, and seconds that these calls waited for a core."""

LOOP_CALLS: Final = "loop_calls"
LOOP_LOOKS: Final = "loop_looks"
LOOP_HELD: Final = "loop_held_s"
"""Keys in ``extra``: number of calls on the event loop, number of timed calls, and seconds that timed calls blocked the
loop."""

LAST_WAITS: Final = 4096
"""Number of most recent consumer waits that are kept for statistics."""


@dataclass(slots=True)
class StageCounters:
    """Counters of one stage, summed over all epochs.

    Attributes:
        name: Label of the stage.
        rows: Number of rows emitted.
        rows_in: Number of elements received; for a source, number of records read.
        nbytes: Bytes emitted.
        chunks: Number of chunks emitted.
        busy_s: Seconds of work, summed over workers. For a source, seconds during which a request was in progress.
        cpu_s: CPU seconds used during ``busy_s``, if measured.
        input_wait_s: Seconds spent waiting for input.
        output_wait_s: Seconds spent waiting for space in the output queue.
        workers: Maximum number of hops (calls on worker threads) that run at the same time.
        waits_for: Resource that the stage mainly uses: "cpu", "network", "disk", "device", or "user" for a user
            function.
        what: User function or files of the stage, with source line, such as "decode (train.py:12)".
        work: Name of the computation for reports, such as "decode" or "parse".
        runs_in: Executor of user functions: "threads", "processes", "interpreters" or "loop"; "" without functions.
        inputs: Plan positions of the stages that this stage reads from.
        dropped: Rows dropped intentionally (remainder, filter, take, skip, shard).
        skipped: Failed rows that the error policy dropped.
        replaced: Failed rows that the error policy replaced with a value.
        retries: Number of retries by the error policy.
        fused_wait_s: Seconds during which other stages that share the same worker calls used the worker.
        extra: Counters that only some stages have, by key.
    """

    name: str
    rows: int = 0
    rows_in: int = 0
    nbytes: int = 0
    chunks: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    input_wait_s: float = 0.0
    output_wait_s: float = 0.0
    workers: int = 1
    waits_for: str = "cpu"
    what: str = ""
    work: str = ""
    runs_in: str = ""
    inputs: tuple[str, ...] = ()
    dropped: int = 0
    skipped: int = 0
    replaced: int = 0
    retries: int = 0
    fused_wait_s: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name of the stage, followed by its function or files."""
        return f"{self.name} {self.what}" if self.what else self.name

    @property
    def transfer_s(self) -> float:
        """Time to send rows to worker processes and back, in seconds, without the work in these processes."""
        return self.extra.get(TRANSFER, 0.0)

    @property
    def at_work_s(self) -> float:
        """Time during which the workers were occupied, in seconds: work plus transfer of rows."""
        return self.busy_s + self.transfer_s

    def add(self, name: str, value: float) -> None:
        """Add ``value`` to a counter in ``extra``."""
        self.extra[name] = self.extra.get(name, 0) + value

    def since(self, before: StageCounters | None) -> StageCounters:
        """Return the difference between these counters and an earlier copy of them."""
        if before is None:
            return replace(self, extra=dict(self.extra))
        summed = {name: getattr(self, name) - getattr(before, name) for name in _SUMMED}
        extra = {name: value - before.extra.get(name, 0.0) for name, value in self.extra.items()}
        extra |= {name: self.extra[name] for name in _NOT_SUMMED if name in self.extra}
        return replace(self, **summed, extra=extra)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_NOT_SUMMED: Final = (SHARDS,)
_SUMMED: Final = tuple(
    part.name for part in fields(StageCounters) if part.type in ("int", "float") and part.name != "workers"
)


@dataclass(slots=True)
class ConsumerCounters:
    """Counters of the training loop, which consumes the elements.

    Attributes:
        elements: Number of elements delivered.
        nbytes: Total size of the delivered elements in bytes.
        wait_s: Seconds that the training loop waited for elements in ``next()``.
        first_wait_s: Part of ``wait_s`` before the first delivery.
        waits: Duration in seconds of each of the last :data:`LAST_WAITS` waits.
        started_at: ``time.perf_counter()`` when the loader was opened; 0.0 until then.
        first_at: ``time.perf_counter()`` at the first delivery; 0.0 until then.
        last_at: ``time.perf_counter()`` at the last delivery; 0.0 before the first delivery.
    """

    elements: int = 0
    nbytes: int = 0
    wait_s: float = 0.0
    first_wait_s: float = 0.0
    started_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_WAITS), repr=False)

    def waited(self, seconds: float) -> None:
        """Record the duration of a wait for an element, in seconds."""
        self.wait_s += seconds
        self.waits.append(seconds)

    def received(self, now: float) -> None:
        """Record a delivery at time ``now`` (``time.perf_counter()``)."""
        if not self.first_at:
            self.first_at, self.first_wait_s = now, self.wait_s
        self.last_at = now

    @property
    def first_s(self) -> float:
        """Seconds from open to the first delivery; 0.0 before the first delivery."""
        return max(0.0, self.first_at - self.started_at)

    def wait_quantile_s(self, share: float) -> float:
        """Return the quantile ``share`` (0 to 1) of the recent wait times, in seconds; 0.0 without waits."""
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else 0.0

    def copy(self, elements: int) -> ConsumerCounters:
        """Return a copy of the counters with the given number of elements."""
        return replace(self, elements=elements, waits=self.waits.copy())

    def as_dict(self) -> dict[str, Any]:
        """Return the counters as JSON-compatible data, with the median and 99th percentile of recent wait times."""
        named = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "waits"}
        return named | {"wait_p50_s": self.wait_quantile_s(0.5), "wait_p99_s": self.wait_quantile_s(0.99)}
