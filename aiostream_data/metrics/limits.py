"""Find the stage that limits a pipeline, from where everybody's time went.

How this works. Stages hand on through bounded queues. So the limit shows in the waits around it: stages after it wait
for input, stages before it wait for room. The search starts at the consumer. It goes from a stage to its input for as
long as the stage mostly waits for input. Where a stage has several inputs, the slow one is the one that never waits for
room. Where this ends at a source that did not wait for bytes, and the cores were all in use, the stage limits that
used most of them: a reader that gets no core looks like a slow one.
"""

from __future__ import annotations

from aiostream_data.metrics.causes import cause_of, loop_share_held, uses_all_cores
from aiostream_data.metrics.verdict import TOO_EARLY, Verdict
from aiostream_data.metrics.window import MeasuredWindow, root_of

LEAST_S = 1.0
"""Seconds that have to be observed before a limit is named."""

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


def find_limit(window: MeasuredWindow | None) -> Verdict:
    """Return what limits a run.

    Args:
        window: What was observed since the first element; None where there is none yet.
    """
    if window is None or window.seconds < LEAST_S or not window.stages:
        return _too_early(window)
    if window.consumer_wait_s < CONSUMER_WAITS * window.seconds:
        waited = f"the training loop waited {window.consumer_wait_s / window.seconds:.0%} of its time"
        return Verdict(stage="consumer", cause="consumer", evidence=waited)
    place = _blocker_of_loop(window) or _first_not_starved(window)
    cause = cause_of(place, window)
    if window.stages[place].waits_for in ("network", "disk") and (not cause.is_wait or uses_all_cores(window)):
        place = _user_of_cores(window, place)
        cause = cause_of(place, window)
    stage = window.stages[place]
    return Verdict(
        place=place,
        stage=stage.name,
        what=stage.what,
        cause=cause.name,
        detail=cause.detail,
        evidence=cause.evidence,
    )


def _too_early(window: MeasuredWindow | None) -> Verdict:
    seen = "no element was received" if window is None else f"{window.seconds:.1f} s were observed"
    return Verdict(stage="pipeline", cause=TOO_EARLY, evidence=f"{seen}, and {LEAST_S:g} s are needed")


def _blocker_of_loop(window: MeasuredWindow) -> str | None:
    """Return the stage whose coroutines keep an event loop most of the time, if there is one."""
    place = max(window.stages, key=lambda each: loop_share_held(each, window))
    return place if loop_share_held(place, window) > SATURATED else None


def _first_not_starved(window: MeasuredWindow) -> str:
    place = root_of(window.stages)
    assert place is not None, "there is a stage"
    while True:
        inputs = window.inputs_of(place)
        if not inputs or _limits(place, window):
            return place
        running = [each for each in inputs if window.stages[each].rows or window.stages[each].busy_s] or inputs
        place = min(running, key=lambda each: window.stages[each].output_wait_s / window.seconds_of(each))


def _limits(place: str, window: MeasuredWindow) -> bool:
    """Return True if a stage with inputs keeps those after it waiting, and is not kept waiting itself."""
    stage, seconds = window.stages[place], window.seconds_of(place)
    if stage.waits_for == "cpu" and stage.cpu_s < OFF_CORE * stage.busy_s:
        return False  # it waited for the GIL or for a thread, which somebody else had
    if stage.at_work_s < IDLE * seconds:
        return False
    if stage.input_wait_s + stage.fused_wait_s < STARVED * seconds:
        return True
    cores = min(stage.workers, window.cpus)
    return stage.at_work_s > SATURATED * stage.workers * seconds or stage.cpu_s > SATURATED * cores * seconds


def _user_of_cores(window: MeasuredWindow, source: str) -> str:
    """Return the stage that used more CPU time than the source and the event loop together; else the source."""
    cores = {place: stage.cpu_s / window.seconds_of(place) for place, stage in window.stages.items()}
    place = max(cores, key=cores.__getitem__)
    return place if cores[place] > cores[source] + window.loop_share_of(source) else source
