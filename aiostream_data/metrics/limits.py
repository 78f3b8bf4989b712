"""Name the stage that limits a pipeline, from where everybody's time went.

Every stage hands on through bounded queues, so the one that limits shows in the waits around it:
stages after it wait for input, stages before it wait for room. Walking from the consumer towards the
sources, the limit is the first one that does work and hardly ever waited for input, or whose
workers were busy all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data.metrics.counters import ConsumerCounters, StageCounters

CONSUMER_WAITS = 0.10
"""Below this share of its time spent waiting, the training loop itself is the limit."""

STARVED = 0.50
"""Above this share of time without input, a stage is not the limit; something before it is."""

SATURATED = 0.75
"""Above this share of its workers' time at work, a stage is the limit though it waits for input meanwhile."""

IDLE = 0.20
"""A stage that worked for less than this share of the time is not the limit."""

OFF_CORE = 0.10
"""A stage that only computes, and was on a core for less than this share of its work, waited for the GIL.

Other programs take cores away as well, but not so much: one that shares two cores with three of them keeps a fifth.
"""

THROTTLED = 0.10
"""Above this share of requests that were retries, the store is holding back."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits a pipeline.

    Attributes:
        stage: Its name; "consumer" for the training loop.
        cause: "consumer", "network", "throttle", "disk", "cpu", "gil", "user", "device", "memory" or "unknown".
        advice: What to change.
    """

    stage: str
    cause: str
    advice: str

    @property
    def sentence(self) -> str:
        """One sentence naming stage, cause and cure."""
        return f"{self.stage} ({self.cause}): {self.advice}"


ADVICE = {
    "consumer": "the training loop takes longer than the data does; the pipeline keeps up",
    "network": "reading waits for the store; raise cycle_length, use larger objects, or move closer to the data",
    "disk": "reading waits for the file system; raise cycle_length, or put the files on a faster disk",
    "throttle": "the store answers with errors that have to be retried; spread the keys or ask for less at once",
    "cpu": "framing, decoding or gathering use all they get; store data in a cheaper form, or give more cores",
    "gil": "the function holds the GIL, so threads do not help; use executor='process', or vectorise it",
    "user": "the function takes the time; make it cheaper or raise its concurrency",
    "device": "copies to the device take the time; send smaller dtypes or fewer bytes",
    "memory": "readers wait for room in the memory limit; raise memory_limit or shrink the buffers",
    "unknown": "too little was delivered to tell",
}


def find_limit(
    stages: Sequence[StageCounters],
    consumer: ConsumerCounters,
    wall_s: float,
    budget_wait_s: float,
    throttled: float,
) -> Limit:
    """Return what limits a run.

    Args:
        stages: Sources first.
        wall_s: Seconds the counters cover.
        budget_wait_s: Seconds that readers waited for memory, summed.
        throttled: Share of requests that were retries.
    """
    if consumer.elements == 0 or not stages:
        return Limit("pipeline", "unknown", ADVICE["unknown"])
    if consumer.wait_s < CONSUMER_WAITS * wall_s:
        return Limit("consumer", "consumer", ADVICE["consumer"])
    stage = _first_not_starved(stages, wall_s)
    cause = _cause(stage, wall_s, budget_wait_s, throttled)
    return Limit(stage.name, cause, ADVICE[cause])


def _first_not_starved(stages: Sequence[StageCounters], wall_s: float) -> StageCounters:
    for stage in reversed(stages):
        if stage.busy_s == 0:
            continue  # it only passes on, as prefetch and repeat do
        hardly_ran = stage.busy_s < IDLE * wall_s
        if stage.waits_for == "cpu" and (hardly_ran or stage.cpu_s < OFF_CORE * stage.busy_s):
            continue  # it waited for the GIL or for a thread, which somebody else had
        if stage.waits_for == "user" and stage.rows_in and hardly_ran:
            continue
        if stage.rows_in == 0 or stage.input_wait_s + stage.fused_wait_s < STARVED * wall_s:
            return stage
        if stage.busy_s > SATURATED * stage.workers * wall_s:
            return stage
    return stages[0]


def _cause(stage: StageCounters, wall_s: float, budget_wait_s: float, throttled: float) -> str:
    if stage.waits_for in ("network", "disk"):
        if throttled > THROTTLED:
            return "throttle"
        if budget_wait_s > STARVED * wall_s:
            return "memory"
        fetching = stage.extra.get("fetch_s", 0.0)
        return stage.waits_for if fetching > stage.busy_s else "cpu"
    if stage.waits_for == "user" and _holds_gil(stage, wall_s):
        return "gil"
    return stage.waits_for


def _holds_gil(stage: StageCounters, wall_s: float) -> bool:
    """True when more than one thread was in the function, and together they got about one core.

    Threads that wait for the GIL between two calls are not in the function: two of them are seen in it little
    more than one at a time. Where other programs leave less than most of a core, nothing tells them from
    threads that wait for something else, and the answer is no.
    """
    got_one_core = 0.6 * wall_s < stage.cpu_s < 1.2 * wall_s
    return stage.workers > 1 and got_one_core and stage.busy_s > 1.05 * wall_s and stage.cpu_s < 0.92 * stage.busy_s
