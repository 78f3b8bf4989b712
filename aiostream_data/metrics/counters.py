"""What one stage did: rows, bytes, and where its time went. Plain numbers, written by the engine."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

ON_DISK: Final = "disk_nbytes"
PEAK_ON_DISK: Final = "disk_peak_nbytes"
"""Under ``extra``, bytes of the files in which rows of a stage wait now, and the most at any time."""

FETCH: Final = "fetch_s"
"""Under ``extra`` of a source, seconds that its reads took, summed."""

FETCHES: Final = "fetches"
FETCHED: Final = "fetched_nbytes"
"""... how many there were, and their bytes, ..."""

BYTES_WAIT: Final = "bytes_wait_s"
"""... seconds that its readers waited for them, summed, ..."""

SHARDS: Final = "shards"
"""... and how many shards it has in an epoch."""

TRANSFER: Final = "transfer_s"
"""Under ``extra``, seconds that rows took to worker processes and back, beside what was done there."""

GIL_LOOKS: Final = "gil_looks"
GIL_TAKEN: Final = "gil_taken"
"""Under ``extra``, how often the event loop let the GIL go while functions ran, and how often it was taken at once."""

SLOW_ROWS: Final = "slow_rows_s"
"""Under ``extra``, the part of ``busy_s`` in which rows were worked on that took far longer than others."""

PREEMPTIONS: Final = "preemptions"
"""Under ``extra``, how often other threads took the core from those of the stage."""

CORE_HAD: Final = "core_had_s"
CORE_WAITED: Final = "core_waited_s"
"""Under ``extra``, seconds in which calls that were looked at were on a core, and in which they waited for one."""

LOOP_CALLS: Final = "loop_calls"
LOOP_LOOKS: Final = "loop_looks"
LOOP_HELD: Final = "loop_held_s"
"""Under ``extra``, calls on the event loop, how many of these were timed, and the seconds that these kept the loop."""

LAST_WAITS: Final = 4096
"""Hand-overs of which the consumer's waits are kept."""


@dataclass(slots=True)
class StageCounters:
    """Counters of one stage, over all epochs.

    Attributes:
        name: The stage's label.
        rows, nbytes, chunks: What it handed on.
        rows_in: Elements it received; a source counts what it read.
        busy_s: Seconds of work, summed over its workers; for a source, seconds with a request in flight.
        cpu_s: CPU seconds within ``busy_s``, where they are measured.
        input_wait_s: Seconds in which it had nothing to work on.
        output_wait_s: Seconds in which it could not hand on what it had.
        workers: How many hops may run at once.
        waits_for: What its busy time is spent on, for reports: "cpu", "network", "disk", "device" or "user".
        what: What the user gave it and where, for reports, such as "decode (train.py:12)".
        work: What it does while it computes, for reports, such as "decode" or "parse".
        runs_in: Where functions of the user run: "threads", "processes", "interpreters" or "loop"; "" where none do.
        inputs: Places of the stages whose rows it takes.
        dropped: Rows it left out on purpose (a tail with drop_remainder, a filter, take, skip, shard).
        skipped, replaced: Rows on which it failed, and that its error policy left out or gave a value for.
        retries: Further attempts that its error policy made.
        fused_wait_s: Seconds in which stages that run in the same hops had the worker.
        extra: What only some stages count.
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
        """Name of the stage, and of what the user gave it."""
        return f"{self.name} {self.what}" if self.what else self.name

    @property
    def transfer_s(self) -> float:
        """Seconds that rows took to worker processes and back, beside what was done there."""
        return self.extra.get(TRANSFER, 0.0)

    @property
    def at_work_s(self) -> float:
        """Seconds in which its workers could take nothing else."""
        return self.busy_s + self.transfer_s

    def add(self, name: str, value: float) -> None:
        """Add to one of the values under ``extra``."""
        self.extra[name] = self.extra.get(name, 0) + value

    def since(self, before: StageCounters | None) -> StageCounters:
        """Return what was counted since, given what was counted before."""
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
    """What the training loop saw.

    Attributes:
        elements: Elements delivered.
        nbytes: Their bytes.
        wait_s: Seconds the training loop waited in ``next()``.
        first_wait_s: Of these, the ones before the first delivery.
        waits: Of these, the last :data:`LAST_WAITS`, one per hand-over.
        started_at, first_at, last_at: ``time.perf_counter()`` at open, first and last delivery; 0.0 before.
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
        """Note a wait for a hand-over."""
        self.wait_s += seconds
        self.waits.append(seconds)

    def received(self, now: float) -> None:
        """Note a delivery."""
        if not self.first_at:
            self.first_at, self.first_wait_s = now, self.wait_s
        self.last_at = now

    @property
    def first_s(self) -> float:
        """Seconds from open to the first delivery; 0.0 before."""
        return max(0.0, self.first_at - self.started_at)

    def wait_quantile_s(self, share: float) -> float:
        """Return how long a hand-over was waited for at most in this share of the last ones; 0.0 before the first."""
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else 0.0

    def copy(self, elements: int) -> ConsumerCounters:
        """Return the same as it is now, with another number of elements."""
        return replace(self, elements=elements, waits=self.waits.copy())

    def as_dict(self) -> dict[str, Any]:
        """Return the same as JSON-safe data, with the median and the 99th percentile of the last waits."""
        named = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "waits"}
        return named | {"wait_p50_s": self.wait_quantile_s(0.5), "wait_p99_s": self.wait_quantile_s(0.99)}
