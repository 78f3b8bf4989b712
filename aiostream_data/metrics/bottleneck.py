"""Find the stage that limits a pipeline's speed, based on the work and wait times of all stages.

How this works. Stages are connected by bounded queues. Stages after the slowest stage therefore wait for input, and
stages before it wait for queue space. The search starts at the last stage, and moves from each stage to its input while
the stage mostly waits for input. If a stage has several inputs, the search follows the input that waits least for queue
space. The search ends at a cache that repeats the rows of an input that has ended.

The search may end at a source. If the source at the end of the search did not wait for bytes, the stage with the most
CPU time is the limit. The same stage is the limit if all cores are in use. Without this rule, a reader that waits for a
core would look like a slow reader.
"""

from __future__ import annotations

from aiostream_data.metrics.bottleneck_result import TOO_EARLY, Verdict
from aiostream_data.metrics.causes import cause_of, loop_share_held, uses_all_cores
from aiostream_data.metrics.window import MeasuredWindow, root_of

CACHE = "cache"

LEAST_S = 1.0
"""Minimum measurement time in seconds for reporting a limiting stage."""

CONSUMER_WAITS = 0.10
"""If the training loop waits for less than ``CONSUMER_WAITS`` of its time, the training loop itself is the limit."""

STARVED = 0.50
"""If a stage waits for input for more than ``STARVED`` of the time, an earlier stage is the limit."""

SATURATED = 0.75
"""If the workers of a stage work for more than ``SATURATED`` of the time, the stage is the limit, even if it also
waits."""

IDLE = 0.20
"""A stage that works for less than ``IDLE`` of the time is not the limit."""

OFF_CORE = 0.10
"""A compute stage waits for the GIL if it uses a core for less than ``OFF_CORE`` of its work time.

Other programs alone rarely push a stage below ``OFF_CORE``. With two cores and three other programs, a stage still has
a core for a fifth of its time.
"""


def find_limit(window: MeasuredWindow | None) -> Verdict:
    """Determine which stage limits the speed of a run, and why.

    Args:
        window: Measurements since the first element; None before the first element.
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
    """Return the stage whose coroutines block an event loop most of the time, or None if no stage does."""
    place = max(window.stages, key=lambda each: loop_share_held(each, window))
    return place if loop_share_held(place, window) > SATURATED else None


def _first_not_starved(window: MeasuredWindow) -> str:
    place = root_of(window.stages)
    assert place is not None, "there is a stage"
    while True:
        inputs = window.inputs_of(place)
        if not inputs or _limits(place, window):
            return place
        running = [each for each in inputs if window.stages[each].rows or window.stages[each].busy_s]
        if not running and window.stages[place].name == CACHE and window.stages[place].rows:
            return place
        place = min(running or inputs, key=lambda each: window.stages[each].output_wait_s / window.seconds_of(each))


def _limits(place: str, window: MeasuredWindow) -> bool:
    """Return True if a stage itself limits the speed, rather than the stages before it."""
    stage, seconds = window.stages[place], window.seconds_of(place)
    if stage.waits_for == "cpu" and stage.cpu_s < OFF_CORE * stage.busy_s:
        return False  # the stage waited for the GIL or for a free thread
    if stage.at_work_s < IDLE * seconds:
        return False
    if stage.input_wait_s + stage.fused_wait_s < STARVED * seconds:
        return True
    cores = min(stage.workers, window.cpus)
    return stage.at_work_s > SATURATED * stage.workers * seconds or stage.cpu_s > SATURATED * cores * seconds


def _user_of_cores(window: MeasuredWindow, source: str) -> str:
    """Return the stage with the most CPU time.

    Return the source instead if that stage uses no more CPU time than the source and its event loop together.
    """
    cores = {place: stage.cpu_s / window.seconds_of(place) for place, stage in window.stages.items()}
    place = max(cores, key=cores.__getitem__)
    return place if cores[place] > cores[source] + window.loop_share_of(source) else source
