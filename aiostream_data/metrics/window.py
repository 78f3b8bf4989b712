"""Measurements of a loader between two moments: the difference between two snapshots of its counters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiostream_data.metrics.counters import StageCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """Measurements of the processes of one ``in_subprocess()`` stage, since the start of the processes.

    Attributes:
        seconds: Mean run time of the processes.
        cpu_s: CPU seconds of all processes, summed.
        loop_cpu_s: CPU seconds of the event loops of all processes, summed.
        processes: Number of processes.
    """

    seconds: float
    cpu_s: float
    loop_cpu_s: float
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterMark:
    """Snapshot of one engine's counters. All counters only grow.

    Attributes:
        at: ``perf_counter()`` of the consumer's last step.
        read_at: ``perf_counter()`` at the time when the CPU clocks were read.
        process_cpu_s: CPU seconds of this process.
        loop_cpu_s: CPU seconds of the engine's event loop.
        pressure_s: Seconds during which a thread of this machine waited for a core; None if unknown.
        elements: Number of elements that the consumer received.
        consumer_wait_s: Seconds that the consumer waited for elements.
        memory_wait_s: Total time in seconds that sources waited for the memory limit.
        stages: Counters of each stage, keyed by plan position.
        storage: Counters of all stores, added up.
        hosted: Process measurements for each ``in_subprocess()`` stage, keyed by the prefix of plan positions in these
            processes.
        machine_cpu_s: CPU seconds of all programs on the cores of this process; None if unknown.
    """

    at: float
    read_at: float
    process_cpu_s: float
    loop_cpu_s: float
    pressure_s: float | None
    elements: int
    consumer_wait_s: float
    memory_wait_s: float
    stages: Mapping[str, StageCounters]
    storage: Mapping[str, float]
    hosted: Mapping[str, Hosted] = field(default_factory=dict)
    machine_cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """Measurements between two snapshots.

    Attributes:
        seconds: Seconds between the consumer's first and last step.
        elements: Number of elements that the consumer received.
        consumer_wait_s: Seconds that the consumer waited for elements.
        memory_wait_s: Total time in seconds that sources waited for the memory limit.
        stages: Counters of each stage since the first snapshot, by plan position. For stages in other processes, the
            counters cover the time since the start of the process.
        storage: Counters of all stores since the first snapshot, added up.
        cpus: Number of cores that this process may use.
        cores_used: Mean number of cores used by this process and its workers.
        loop_cpu_s: CPU seconds of the event loop.
        pressure: Share of the time during which a thread of this machine waited for a core.
        hosted: Measurements of the processes of each ``in_subprocess()`` at the second snapshot.
        cores_of_others: Mean number of cores used by other programs; None if unknown.
    """

    seconds: float
    elements: int
    consumer_wait_s: float
    memory_wait_s: float
    stages: Mapping[str, StageCounters]
    storage: Mapping[str, float]
    cpus: int
    cores_used: float
    loop_cpu_s: float
    pressure: float = 0.0
    hosted: Mapping[str, Hosted] = field(default_factory=dict)
    cores_of_others: float | None = None

    @property
    def is_contended(self) -> bool:
        """True if threads waited for a core during more than ``CONTENDED`` (40 %) of the time."""
        return self.pressure > CONTENDED

    def host_of(self, place: str) -> Hosted | None:
        """Return the measurements of the processes that run a stage; None if the stage runs in this process."""
        return next((hosted for prefix, hosted in self.hosted.items() if place.startswith(prefix)), None)

    def seconds_of(self, place: str) -> float:
        """Return the length in seconds of the time that a stage's counters cover."""
        hosted = self.host_of(place)
        return self.seconds if hosted is None else max(1e-9, hosted.seconds)

    def loop_share_of(self, place: str) -> float:
        """Return the share of the time that the event loop of a stage uses a CPU core."""
        hosted = self.host_of(place)
        if hosted is None:
            return self.loop_cpu_s / self.seconds
        return hosted.loop_cpu_s / max(1e-9, hosted.seconds * hosted.processes)

    def inputs_of(self, place: str) -> list[str]:
        """Return the plan positions of a stage's inputs, including datasets and processes that the stage runs."""
        inner = root_of(self.stages, f"{place}/")
        return [key for key in (*self.stages[place].inputs, *([] if inner is None else [inner])) if key in self.stages]


CONTENDED = 0.4
"""If threads wait for a core during more than ``CONTENDED`` of the time, the machine lacks cores."""


def root_of(places: Mapping[str, object], prefix: str = "") -> str | None:
    """Return the plan position of the last stage among the stages whose positions begin with ``prefix``."""
    own = [key for key in places if key.startswith(prefix) and key[len(prefix) :].isdigit()]
    return max(own, key=lambda key: int(key[len(prefix) :]), default=None)


def reader_of(place: str, stages: Mapping[str, StageCounters]) -> str | None:
    """Return the plan position of the stage that reads from the stage at ``place``; None for the last stage."""
    return next((other for other, stage in stages.items() if place in stage.inputs), None)


def between(begin: CounterMark, end: CounterMark, cpus: int) -> MeasuredWindow:
    """Compute measurements from two snapshots of the same engine."""
    read_s = max(1e-9, end.read_at - begin.read_at)
    stages = {place: counters.since(begin.stages.get(place)) for place, counters in end.stages.items()}
    far_cpu_s = math.fsum(stage.cpu_s for place, stage in stages.items() if _is_far(place, stage, end))
    hosted_cores = math.fsum(hosted.cpu_s / max(1e-9, hosted.seconds) for hosted in end.hosted.values())
    cores_used = (end.process_cpu_s - begin.process_cpu_s + far_cpu_s) / read_s + hosted_cores
    return MeasuredWindow(
        seconds=max(1e-9, end.at - begin.at),
        elements=end.elements - begin.elements,
        consumer_wait_s=end.consumer_wait_s - begin.consumer_wait_s,
        memory_wait_s=end.memory_wait_s - begin.memory_wait_s,
        stages=stages,
        storage={name: value - begin.storage.get(name, 0.0) for name, value in end.storage.items()},
        cpus=cpus,
        cores_used=cores_used,
        loop_cpu_s=end.loop_cpu_s - begin.loop_cpu_s,
        pressure=_pressure(begin, end) / read_s,
        hosted=end.hosted,
        cores_of_others=_cores_of_others(begin, end, read_s, cores_used),
    )


def _is_far(place: str, stage: StageCounters, mark: CounterMark) -> bool:
    """Return True if a stage's functions run in worker processes that this process started."""
    return stage.runs_in == "processes" and not any(place.startswith(prefix) for prefix in mark.hosted)


def _cores_of_others(begin: CounterMark, end: CounterMark, read_s: float, cores_used: float) -> float | None:
    if begin.machine_cpu_s is None or end.machine_cpu_s is None:
        return None
    return max(0.0, (end.machine_cpu_s - begin.machine_cpu_s) / read_s - cores_used)


def _pressure(begin: CounterMark, end: CounterMark) -> float:
    if begin.pressure_s is None or end.pressure_s is None:
        return 0.0
    return end.pressure_s - begin.pressure_s
