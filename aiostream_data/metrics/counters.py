"""What one stage did: rows, bytes, and where its time went. Plain numbers, written by the engine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

ON_DISK: Final = "disk_nbytes"
PEAK_ON_DISK: Final = "disk_peak_nbytes"
"""Under ``extra``, bytes of the files in which rows of a stage wait now, and the most at any time."""


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
    dropped: int = 0
    skipped: int = 0
    replaced: int = 0
    retries: int = 0
    fused_wait_s: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class ConsumerCounters:
    """What the training loop saw.

    Attributes:
        elements: Elements delivered.
        nbytes: Their bytes.
        wait_s: Seconds the training loop waited in ``next()``.
        started_at, first_at, last_at: ``time.perf_counter()`` at open, first and last delivery; 0.0 before.
    """

    elements: int = 0
    nbytes: int = 0
    wait_s: float = 0.0
    started_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
