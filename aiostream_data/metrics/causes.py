"""Why one stage takes the time that it takes: what its workers did, and what they waited for.

How this works. Wall time alone does not tell: a thread that waits for a core is as late as one that waits for a disk.
So each cause has evidence of its own. A function computes where its threads were on a core, or where the system took
the core from them. Otherwise it waits. The GIL shows in threads that take it as
soon as another one lets it go. A disk shows in reads that the page cache could not answer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from aiostream_data.metrics.counters import (
    BYTES_WAIT,
    CORE_HAD,
    CORE_WAITED,
    FETCHED,
    FETCHES,
    GIL_LOOKS,
    GIL_TAKEN,
    LOOP_CALLS,
    LOOP_HELD,
    LOOP_LOOKS,
    ON_DISK,
    PREEMPTIONS,
    SLOW_ROWS,
    StageCounters,
)
from aiostream_data.metrics.sizes import as_size
from aiostream_data.metrics.window import MeasuredWindow

COMPUTES = 0.3
"""A function that is on a core for this share of its time computes, ..."""

COMPUTES_ALONE = 0.2
"""... and with one worker for this share: nobody but other programs keeps it from a core."""

HARDLY = 0.05
"""A function that wants a core for less than this share of its time waits, however many cores all calls use."""

USED = 0.5
"""One that uses this share of all cores computes, however many threads it has, ..."""

USED_BESIDE_OTHERS = 0.15
"""... or this share, where other programs take cores away, ..."""

USED_BETWEEN_OTHERS = 0.03
PREEMPTED_PER_S = 15
PREEMPTED_PER_CPU_S = 4000
"""... or this share, where its threads lose their cores so often in a second off them. Threads that wait lose them as
well, whenever they wake up, and so far more often for each second on a core."""

ONE_CORE = 1.25
"""Threads that got more cores than this together do not hold the GIL all the time."""

HOLDING = 0.4
"""Threads that hold the GIL most of the time get this share of a core together, ..."""

HOLDING_LESS = 0.05
"""... or this share, where other programs take cores away."""

TAKEN = 0.6
"""Where threads that hold the GIL run, it is taken at so many looks, whatever else runs."""

MANY_FOR_A_CORE = 4
HAS_GIL = 0.8
"""Where there are more threads for each core, and they share the GIL, they want a core for less than this share of
their time: they wait for the GIL."""

ENOUGH_LOOKS = 6
"""Looks before that is believed."""

WAITED = 0.4
"""A source whose readers waited for bytes for this share of the time is limited by what it reads from."""

WAITED_FOR_MEMORY = 0.5
"""The same for the memory limit."""

MOST = 0.5
"""A part of a sum that is the main part."""

THROTTLED = 0.10
"""Above this share of requests that were retries, the store is holding back."""

SMALL_FILE_NBYTES = 128 << 10
"""Opening a file costs more than copying this much."""

LOOP_IS_BUSY = 0.6
"""An event loop that computes for this share of the time does little else, ..."""

LOOP_IS_KEPT_BUSY = 0.3
"""... or this share, where other programs take cores away."""

LOOP_IS_BLOCKED = 0.5
"""Coroutines whose steps take this share of the time keep the event loop from everything else."""

ALL_CORES = 0.85
"""Above this share of all cores, cores are what is missing, whatever else was waited for."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a stage takes its time.

    Attributes:
        name, detail, evidence: As of :class:`.verdict.Verdict`.
        is_wait: Its workers waited for something that is no core.
    """

    name: str
    detail: str = ""
    evidence: str = ""
    is_wait: bool = False


def cause_of(place: str, window: MeasuredWindow) -> Cause:
    """Return why a stage takes the time that it takes."""
    stage = window.stages[place]
    if stage.waits_for == "device":
        return Cause("device", evidence="copies to the device are waited for", is_wait=True)
    if stage.waits_for in ("network", "disk"):
        return _cause_of_source(stage, place, window)
    if stage.waits_for != "user":
        return _cause_of_step(stage, place, window)
    if stage.runs_in == "loop":
        return _cause_of_coroutine(stage, place, window)
    return _cause_of_function(stage, place, window)


def uses_all_cores(window: MeasuredWindow) -> bool:
    """Return True if the pipeline has all cores at work."""
    return window.cores_used > ALL_CORES * window.cpus


# -- functions


def _cause_of_function(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    busy_s, extra = max(1e-9, stage.busy_s), stage.extra
    if stage.transfer_s > stage.busy_s:
        return Cause(
            "transfer", evidence=f"rows took {stage.transfer_s / busy_s:.1f} times as long to travel as to be worked on"
        )
    if extra.get(SLOW_ROWS, 0.0) > MOST * busy_s:
        return Cause("skew", evidence=f"a few slow rows took {extra[SLOW_ROWS] / busy_s:.0%} of the function's time")
    if _holds_gil(stage, place, window):
        cores = f"{_cores(stage, place, window):.1f} of {window.cpus} cores"
        return Cause("gil", _function(stage), f"calls used {cores}, and held the GIL")
    if _computes(stage, place, window):
        used = f"calls used {_cores(stage, place, window):.1f} of {window.cpus} cores"
        return Cause("cpu", _work(stage), f"{used}, {stage.workers} at once")
    waited = f"calls waited {1 - min(1.0, stage.cpu_s / busy_s):.0%} of their time, {stage.workers} at once"
    return Cause("waiting", _function(stage), waited, is_wait=True)


def _computes(stage: StageCounters, place: str, window: MeasuredWindow) -> bool:
    """Return True if threads were on a core, or would have been if nobody had taken it."""
    least = COMPUTES if stage.workers > 1 else COMPUTES_ALONE
    if stage.cpu_s > least * stage.busy_s:
        return True
    used = _cores(stage, place, window) / window.cpus
    wanted = _share_with_core_wanted(stage)
    if wanted is not None:
        return wanted > least or (used > USED and wanted > HARDLY)
    if used > (USED_BESIDE_OTHERS if window.is_contended else USED):
        return True
    off_core_s, preemptions = stage.busy_s - stage.cpu_s, stage.extra.get(PREEMPTIONS, 0)
    is_preempted = PREEMPTED_PER_S * off_core_s < preemptions < PREEMPTED_PER_CPU_S * stage.cpu_s
    return is_preempted and used > USED_BETWEEN_OTHERS


def _share_with_core_wanted(stage: StageCounters) -> float | None:
    """Return for which share of its time a function was on a core or waited for one; None where nothing tells."""
    had_s = stage.extra.get(CORE_HAD, 0.0)
    if not had_s:
        return None
    return stage.cpu_s / max(1e-9, stage.busy_s) * (1.0 + stage.extra.get(CORE_WAITED, 0.0) / had_s)


def _holds_gil(stage: StageCounters, place: str, window: MeasuredWindow) -> bool:
    if stage.runs_in != "threads" or not _has_gil():
        return False
    hosted = window.host_of(place)
    processes = 1 if hosted is None else hosted.processes
    cores = _cores(stage, place, window) / processes
    if not (HOLDING_LESS if window.is_contended else HOLDING) < cores < ONE_CORE:
        return False
    is_many = stage.workers > MANY_FOR_A_CORE * window.cpus * processes
    if is_many and (_share_with_core_wanted(stage) or 0.0) > HAS_GIL:
        return False
    looks, taken = stage.extra.get(GIL_LOOKS, 0), stage.extra.get(GIL_TAKEN, 0)
    return looks >= ENOUGH_LOOKS and taken > TAKEN * looks


def _has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _cause_of_coroutine(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    share = window.loop_share_of(place)
    if share > (LOOP_IS_KEPT_BUSY if window.is_contended else LOOP_IS_BUSY):
        return Cause("loop", _function(stage), f"the event loop computed {share:.0%} of the time")
    held = loop_share_held(place, window)
    if held > LOOP_IS_BLOCKED:
        return Cause("loop", _function(stage), f"it blocked the event loop {held:.0%} of the time, between its awaits")
    at_once = f", {stage.workers} at once" if stage.rows_in else ""
    return Cause("waiting", _function(stage), f"the event loop was idle {1 - share:.0%} of the time{at_once}", True)


def loop_share_held(place: str, window: MeasuredWindow) -> float:
    """Return for which share of the time a stage's coroutines kept their event loop between their awaits."""
    stage, hosted = window.stages[place], window.host_of(place)
    looks, loops = stage.extra.get(LOOP_LOOKS, 0), 1 if hosted is None else hosted.processes
    if not looks:
        return 0.0
    held_s = stage.extra.get(LOOP_HELD, 0.0) * stage.extra[LOOP_CALLS] / looks
    return min(1.0, held_s / (window.seconds_of(place) * loops))


# -- sources


def _cause_of_source(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    storage = window.storage
    refused = storage.get("retries", 0) / max(1, storage.get("requests", 0))
    if refused > THROTTLED:
        return Cause("throttle", evidence=f"{refused:.0%} of the requests had to be repeated", is_wait=True)
    if window.memory_wait_s > WAITED_FOR_MEMORY * window.seconds:
        evidence = f"readers waited {window.memory_wait_s:.1f} s for room, added up"
        return Cause("memory", evidence=evidence, is_wait=True)
    if stage.waits_for == "network":
        return _cause_of_remote_source(stage, place, window)
    waited_s = storage.get("disk_wait_s", 0.0)
    if waited_s > WAITED * window.seconds:
        return Cause("disk", evidence=f"reads waited {waited_s:.1f} s for the file system, added up", is_wait=True)
    return _cause_of_reading(stage, place, window)


def _cause_of_remote_source(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    waited_s = stage.extra.get(BYTES_WAIT, 0.0)
    if waited_s < WAITED * window.seconds_of(place):
        return _cause_of_reading(stage, place, window)
    first_byte_s, body_s = (window.storage.get(name, 0.0) for name in ("first_byte_s", "body_s"))
    evidence = f"readers waited {waited_s:.1f} s for bytes, added up"
    if first_byte_s + body_s == 0.0:
        return Cause("network", evidence=evidence, is_wait=True)
    share = first_byte_s / (first_byte_s + body_s)
    return Cause(
        "network",
        "latency" if share > MOST else "bandwidth",
        f"{evidence}; answers took {share:.0%} of their time to begin",
        is_wait=True,
    )


def _cause_of_reading(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    """Return what reading costs that waited for nothing."""
    seconds, files = window.seconds_of(place), stage.extra.get(FETCHES, 0)
    nbytes = stage.extra.get(FETCHED, 0) / max(1, files)
    if files > seconds and nbytes < SMALL_FILE_NBYTES and stage.cpu_s < MOST * seconds:
        size = f"{as_size(int(nbytes))} each"
        return Cause("files", evidence=f"{files / seconds:,.0f} files a second, {size}, and no wait for the disk")
    if stage.cpu_s < COMPUTES_ALONE * seconds and not window.is_contended:
        return NOTHING_FOUND
    return Cause("cpu", stage.work, f"it used {_cores(stage, place, window):.1f} of {window.cpus} cores")


# -- everything else


def _cause_of_step(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    if ON_DISK in stage.extra and stage.cpu_s < MOST * stage.busy_s:
        return Cause("disk", evidence="rows wait in a file", is_wait=True)
    used = f"it used {_cores(stage, place, window):.1f} of {window.cpus} cores"
    return Cause("cpu", _work(stage), used)


def _cores(stage: StageCounters, place: str, window: MeasuredWindow) -> float:
    return stage.cpu_s / window.seconds_of(place)


def _work(stage: StageCounters) -> str:
    return stage.work or _function(stage)


def _function(stage: StageCounters) -> str:
    """Return the name of the stage's function; that of the stage where it has none."""
    name = stage.what.partition(" (")[0] if stage.waits_for == "user" else ""
    return name or stage.name.rpartition("/")[2]


NOTHING_FOUND: Final = Cause("unclear", evidence="no stage was at work or waited for most of the time")
