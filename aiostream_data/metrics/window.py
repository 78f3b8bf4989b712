"""What a loader did between two moments: the difference of two marks of its counters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiostream_data.metrics.counters import StageCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """The processes of one ``in_subprocess()``, since they began to run.

    Attributes:
        seconds: How long that was, on average.
        cpu_s, loop_cpu_s: CPU seconds of the processes, and of their event loops, summed.
        processes: How many there are.
    """

    seconds: float
    cpu_s: float
    loop_cpu_s: float
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterMark:
    """The counters of one engine at one moment. All of them only grow.

    Attributes:
        at: ``perf_counter()`` of the consumer's last step.
        read_at: ``perf_counter()`` when CPU clocks were read.
        process_cpu_s: CPU seconds of this process.
        loop_cpu_s: CPU seconds of the engine's event loop.
        pressure_s: Seconds in which threads of this machine waited for a core; None where nothing tells.
        elements, consumer_wait_s: Elements that the consumer received, and seconds that it waited for them.
        memory_wait_s: Seconds that sources waited for the memory limit, summed.
        stages: Counters of the stages by place.
        storage: Counters of all stores together.
        hosted: Processes of each ``in_subprocess()``, by the prefix of their stages' places.
        machine_cpu_s: CPU seconds of all programs on the same cores; None where nothing tells.
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
    """What happened between two marks.

    Attributes:
        seconds: Between the consumer's first and last step.
        elements, consumer_wait_s, memory_wait_s, storage: As of :class:`CounterMark`, since the first mark.
        stages: Counters by place, since the first mark; of processes since they began.
        cpus: Cores that this process may use.
        cores_used: Cores that this process and its workers used on average.
        loop_cpu_s: CPU seconds of the event loop.
        pressure: Share of the time in which threads of this machine waited for a core.
        hosted: As of the last mark.
        cores_of_others: Cores that other programs used on average; None where nothing tells.
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
        """Whether threads had to wait for cores most of the time."""
        return self.pressure > CONTENDED

    def host_of(self, place: str) -> Hosted | None:
        """Return the processes that a stage runs in; None for a stage of this process."""
        return next((hosted for prefix, hosted in self.hosted.items() if place.startswith(prefix)), None)

    def seconds_of(self, place: str) -> float:
        """Return the seconds that the counters of a stage are of."""
        hosted = self.host_of(place)
        return self.seconds if hosted is None else max(1e-9, hosted.seconds)

    def loop_share_of(self, place: str) -> float:
        """Return which share of its time the event loop of a stage computed."""
        hosted = self.host_of(place)
        if hosted is None:
            return self.loop_cpu_s / self.seconds
        return hosted.loop_cpu_s / max(1e-9, hosted.seconds * hosted.processes)

    def inputs_of(self, place: str) -> list[str]:
        """Return the places of what a stage reads, and of the data sets or processes that it runs."""
        inner = root_of(self.stages, f"{place}/")
        return [key for key in (*self.stages[place].inputs, *([] if inner is None else [inner])) if key in self.stages]


CONTENDED = 0.4
"""Share of the time with threads that wait for a core, above which cores are what is missing."""


def root_of(places: Mapping[str, object], prefix: str = "") -> str | None:
    """Return the place of the last stage of a plan: that of the whole, or of what runs below a prefix."""
    own = [key for key in places if key.startswith(prefix) and key[len(prefix) :].isdigit()]
    return max(own, key=lambda key: int(key[len(prefix) :]), default=None)


def reader_of(place: str, stages: Mapping[str, StageCounters]) -> str | None:
    """Return the place of the stage that reads from another one; None behind the last."""
    return next((other for other, stage in stages.items() if place in stage.inputs), None)


def between(begin: CounterMark, end: CounterMark, cpus: int) -> MeasuredWindow:
    """Return what happened between two marks of one engine."""
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
    """Return True for a stage whose functions run in worker processes of this process."""
    return stage.runs_in == "processes" and not any(place.startswith(prefix) for prefix in mark.hosted)


def _cores_of_others(begin: CounterMark, end: CounterMark, read_s: float, cores_used: float) -> float | None:
    if begin.machine_cpu_s is None or end.machine_cpu_s is None:
        return None
    return max(0.0, (end.machine_cpu_s - begin.machine_cpu_s) / read_s - cores_used)


def _pressure(begin: CounterMark, end: CounterMark) -> float:
    if begin.pressure_s is None or end.pressure_s is None:
        return 0.0
    return end.pressure_s - begin.pressure_s
