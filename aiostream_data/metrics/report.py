"""Statistics and report of a run: the counters of each stage, and the bottleneck of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, Final

from aiostream_data.metrics.allocator import allocator_state
from aiostream_data.metrics.bottleneck_result import Limit
from aiostream_data.metrics.counters import ON_DISK, PEAK_ON_DISK, ConsumerCounters, StageCounters
from aiostream_data.metrics.device_copies import DeviceCopies
from aiostream_data.metrics.html_table import html_table

SHARD_CACHE: Final = "shard cache"
"""Name under which shard cache memory is reported. Shard cache memory has its own limit, outside the memory budget."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Memory use, compared with the memory limit.

    Attributes:
        limit: Memory limit in bytes.
        used: Bytes currently in use.
        peak: Maximum bytes in use at any time.
        wait_s: Seconds spent waiting for free memory.
        holders: Pairs (used, peak) in bytes for each kind of memory: ``queues``, ``ranges``, ``shuffle``, ... Keys that
            begin with ``in_subprocess/`` contain the totals over all ``in_subprocess`` processes. The memory of ``shard
            cache`` is not included in ``used`` and ``peak``.
    """

    limit: int
    used: int
    peak: int
    wait_s: float
    holders: Mapping[str, tuple[int, int]] = field(default_factory=dict)


_WORTH_A_QUANTILE: Final = 100
"""Minimum number of waits for reporting a 99th percentile."""

_TOLD: Final = {
    "GET": "gets",
    "HEAD": "heads",
    "LIST": "lists",
    "throttled": "throttled",
    "time-outs": "timeouts",
    "hedges": "hedges",
    "read from the shard cache": "cache_hits",
}
"""Report labels and names of additional store counters. A report shows an additional store counter only if it is not
0."""


def with_holders_elsewhere(
    here: Mapping[str, tuple[int, int]], elsewhere: Iterable[Mapping[str, tuple[int, int]]]
) -> dict[str, tuple[int, int]]:
    """Add the total memory use of other processes to the memory use of this process, by kind of memory.

    For other processes, the names of the kinds begin with ``in_subprocess/``.
    """
    holders = dict(here)
    for process in elsewhere:
        for holder, (used, peak) in process.items():
            name = f"in_subprocess/{holder}"
            used_before, peak_before = holders.get(name, (0, 0))
            holders[name] = (used_before + used, peak_before + peak)
    return holders


@dataclass(frozen=True, slots=True, repr=False)
class LoaderStats:
    """All counters of a loader at one moment. ``str()`` returns a short summary, and ``as_dict()`` returns all numbers.

    Attributes:
        stages: Counters of each stage, sources first.
        consumer: Counters of the training loop.
        storage: Totals over all stores: requests, bytes, retries and other counters of :class:`.StorageCounters`.
        memory: Use of the memory limit.
        waiting: Number of elements that are ready for the consumer.
        wall_s: Seconds from opening to the consumer's last step. Before the first delivery, the time is measured until
            now.
        stream_hash: Hash over the received rows, as 32 hexadecimal digits; see ``Loader.stream_hash``.
        stream_rows: Number of rows that ``stream_hash`` covers.
        stores: The counters in ``storage`` for each store, by URL scheme.
        cost: Cost of requests and bytes according to ``open(prices=...)``; 0 without prices.
        devices: Copy counters and wait times of each ``to_device`` stage.
        request_limits: Current limits on concurrent requests to the loader's kinds of stores, by host or by bucket and
            first part of the key. All loaders of this process share these limits.
    """

    stages: tuple[StageCounters, ...]
    consumer: ConsumerCounters
    storage: Mapping[str, float]
    memory: MemoryStats
    waiting: int
    wall_s: float
    stream_hash: str = ""
    stream_rows: int = 0
    stores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cost: float = 0.0
    devices: tuple[DeviceCopies, ...] = ()
    request_limits: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON-compatible data."""
        return {
            "stages": [stage.as_dict() for stage in self.stages],
            "consumer": self.consumer.as_dict(),
            "storage": dict(self.storage),
            "memory": asdict(self.memory),
            "waiting": self.waiting,
            "wall_s": self.wall_s,
            "stream_hash": self.stream_hash,
            "stream_rows": self.stream_rows,
            "stores": {scheme: dict(counters) for scheme, counters in self.stores.items()},
            "cost": self.cost,
            "devices": [device.as_dict() for device in self.devices],
            "request_limits": dict(self.request_limits),
        }

    def __str__(self) -> str:
        rows = ", ".join(f"{stage.name} {stage.rows:,}" for stage in self.stages)
        return "\n".join([*_closing(self), f"rows that each stage gave: {rows}"])

    def __repr__(self) -> str:
        return f"<LoaderStats: {'; '.join(_closing(self)[:2])}>"

    def _repr_html_(self) -> str:
        header, *rows = _table(self)
        return html_table(header, rows, _closing(self))


def snapshot(
    stages: Iterable[StageCounters],
    consumer: ConsumerCounters,
    stores: Mapping[str, Mapping[str, float]],
    memory: MemoryStats,
    waiting: int,
    stream_hash: str = "",
    stream_rows: int = 0,
    cost: float = 0.0,
    devices: Sequence[DeviceCopies] = (),
    until: float = 0.0,
) -> LoaderStats:
    """Copy the current counters of a running engine.

    Args:
        stores: Counters of each store, by URL scheme.
        until: Time (``perf_counter()``) of the consumer's last step. ``until=0.0`` selects the last delivery, or the
            current time before the first delivery.
    """
    until = until or consumer.last_at or perf_counter()
    first = next(iter(stores.values()), {})
    totals = {name: sum(counters[name] for counters in stores.values()) for name in first}
    copies = tuple(replace(stage, extra=dict(stage.extra)) for stage in list(stages))
    wall_s = max(1e-9, until - consumer.started_at)
    return LoaderStats(
        stages=copies,
        consumer=consumer.copy(consumer.elements),
        storage=totals,
        memory=memory,
        waiting=waiting,
        wall_s=wall_s,
        stream_hash=stream_hash,
        stream_rows=stream_rows,
        stores=stores,
        cost=cost,
        devices=tuple(devices),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Report of a run. ``str()`` returns a table and a summary, and ``to_json()`` returns all numbers.

    Attributes:
        stats: All counters since the loader was opened.
        limit: The bottleneck of the pipeline since the first element, with its cause and advice.
        start: Description of the work before the first element if this work took most of the time; else "".
    """

    stats: LoaderStats
    limit: Limit
    start: str = ""

    def to_json(self) -> str:
        """Serialize statistics, bottleneck and start description to one line of JSON."""
        return json.dumps({**self.stats.as_dict(), "limit": self.limit.as_dict(), "start": self.start})

    def __str__(self) -> str:
        rows = _table(self.stats)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [_line(row, widths) for row in rows]
        return "\n".join([*lines, *self._below()])

    def __repr__(self) -> str:
        return f"<Report: {_closing(self.stats)[0]}; limit: {self.limit.stage}>"

    def _repr_html_(self) -> str:
        header, *rows = _table(self.stats)
        return html_table(header, rows, self._below())

    def _below(self) -> list[str]:
        """Return the lines of text below the report's table."""
        allocator = allocator_state()
        advice = None if allocator is None else allocator.advice
        beside = [line for line in (advice, self.start) if line]
        return [*_closing(self.stats), *beside, f"limit: {self.limit.sentence}"]


def _table(stats: LoaderStats) -> list[tuple[str, ...]]:
    """Return the column names of the report's table, followed by one table row per stage."""
    names = ("stage", "rows", "MiB", "busy s", "wait in s", "wait out s", "workers", "what")
    return [names, *map(_row, stats.stages)]


def _holders(memory: MemoryStats) -> str:
    """Format the peak memory of each kind of memory, largest first.

    Kinds of memory below 2 % of the total peak are omitted.
    """
    inside = {holder: peak for holder, (_, peak) in memory.holders.items() if not holder.endswith(SHARD_CACHE)}
    peaks = {holder: peak for holder, peak in inside.items() if peak > memory.peak / 50}
    ordered = sorted(peaks.items(), key=lambda entry: -entry[1])
    said = ", ".join(f"{holder} {peak / (1 << 20):.1f}" for holder, peak in ordered)
    return f" ({said}; each at its own peak)" if said else ""


def _beside(memory: MemoryStats) -> list[str]:
    """Return the report line about shard cache memory, which does not count against the memory limit."""
    caches = [held for holder, held in memory.holders.items() if holder.endswith(SHARD_CACHE)]
    if not caches:
        return []
    now, peak = (sum(numbers) / (1 << 20) for numbers in zip(*caches, strict=True))
    return [f"shard cache in memory: {now:.1f} MiB, at most {peak:.1f} MiB; not part of the memory limit"]


def _storage(stats: LoaderStats) -> list[str]:
    """Return the report line about requests to stores, and their cost."""
    storage = stats.storage
    if not storage:
        return []
    told = f"storage: {storage['requests']:,} requests, {storage['nbytes'] / (1 << 20):.1f} MiB"
    told += f", {storage['retries']:,} retries"
    counted = {name: storage.get(counter, 0) for name, counter in _TOLD.items()}
    told += "".join(f", {number:,} {name}" for name, number in counted.items() if number)
    return [told + (f"; cost {stats.cost:.4g}" if stats.cost else "")]


def _on_disk(stage: StageCounters) -> str:
    now, peak = stage.extra[ON_DISK] / (1 << 20), stage.extra[PEAK_ON_DISK] / (1 << 20)
    return f"{stage.name} on disk: {now:.1f} MiB, at most {peak:.1f} MiB; not part of the memory limit"


def _row(stage: StageCounters) -> tuple[str, ...]:
    seconds = (f"{value:.2f}" for value in (stage.busy_s, stage.input_wait_s, stage.output_wait_s))
    return stage.name, f"{stage.rows:,}", f"{stage.nbytes / (1 << 20):.1f}", *seconds, str(stage.workers), stage.what


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    first, *numbers, last = zip(row, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in numbers), last[0]]
    return "  ".join(cells).rstrip()


def _per_hand_over(consumer: ConsumerCounters) -> str:
    """Format the median and the 99th percentile of the wait times, if enough waits were measured."""
    if len(consumer.waits) < _WORTH_A_QUANTILE:
        return ""
    p50, p99 = (1e3 * consumer.wait_quantile_s(share) for share in (0.5, 0.99))
    return f" (each {p50:.2f} ms in the median, {p99:.2f} ms in the 99th percentile)"


def _lost(stages: Sequence[StageCounters]) -> list[str]:
    """Return the report line about records that the error policy skipped or replaced."""
    left_out = ", ".join(f"{_called(stage)} {stage.skipped:,}" for stage in stages if stage.skipped)
    replaced = ", ".join(f"{_called(stage)} {stage.replaced:,}" for stage in stages if stage.replaced)
    told = [f"{did}: {where}" for did, where in (("skipped", left_out), ("replaced", replaced)) if where]
    return [f"{'; '.join(told)} (see on_error=)"] if told else []


def _called(stage: StageCounters) -> str:
    """Return the names of a stage and its function, without the line number."""
    function = stage.what.partition(" (")[0] if stage.waits_for == "user" else ""
    return f"{stage.name} {function}".rstrip()


def _waited(consumer: ConsumerCounters) -> str:
    """Format the time that the training loop waited for the first element, and the time that it waited later."""
    since_s = consumer.wait_s - consumer.first_wait_s
    waited = f"the training loop waited {since_s:.2f} s{_per_hand_over(consumer)}"
    return f", the first after {consumer.first_s:.2f} s; since then {waited}" if consumer.first_at else f"; {waited}"


def _closing(stats: LoaderStats) -> list[str]:
    consumer, memory = stats.consumer, stats.memory
    lines = [
        f"delivered {consumer.elements:,} elements in {stats.wall_s:.2f} s{_waited(consumer)}",
        *_lost(stats.stages),
        f"memory: peak {memory.peak / (1 << 20):.1f} MiB of {memory.limit / (1 << 20):.0f} MiB{_holders(memory)}",
    ]
    lines += [line for device in stats.devices for line in device.sentences]
    lines += [_on_disk(stage) for stage in stats.stages if PEAK_ON_DISK in stage.extra]
    return lines + _beside(memory) + _storage(stats)
