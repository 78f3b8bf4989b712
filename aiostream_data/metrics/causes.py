"""Determine why a stage is slow, from the work and wait times of its workers.

How this works. Wall time alone is not sufficient: a function that waits for a core takes as long as one that waits for
a disk. Each possible cause of slowness therefore needs its own measurement. A function computes if its threads run on a
core, or if the operating system preempts these threads. Otherwise it waits. The GIL is contended if another thread
takes the GIL immediately after each release. A function waits for a disk if its reads miss the page cache.
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
"""A function with several workers counts as computing if it uses a core for more than ``COMPUTES`` of its time."""

COMPUTES_ALONE = 0.2
"""A function with one worker counts as computing if it uses a core for more than ``COMPUTES_ALONE`` of its time. Only
other programs can keep its single worker from a core."""

HARDLY = 0.05
"""A function counts as waiting if it uses or waits for a core for less than ``HARDLY`` of its time."""

USED = 0.5
"""A function counts as computing if it uses more than ``USED`` of all cores, regardless of its number of threads."""

USED_BESIDE_OTHERS = 0.15
"""While other programs compete for the cores, ``USED_BESIDE_OTHERS`` replaces the threshold ``USED``."""

USED_BETWEEN_OTHERS = 0.03
PREEMPTED_PER_S = 15
PREEMPTED_PER_CPU_S = 4000
"""``USED_BETWEEN_OTHERS`` replaces the threshold ``USED`` for threads that the system often preempts. Preemptions are
frequent if they exceed ``PREEMPTED_PER_S`` per second off a core, but stay below ``PREEMPTED_PER_CPU_S`` per CPU
second.

Waiting threads have far more preemptions per CPU second, because each wake-up can cause a preemption."""

ONE_CORE = 1.25
"""If the threads of a function use more than ``ONE_CORE`` cores, the GIL does not limit the function."""

HOLDING = 0.4
"""The GIL limits a function only if its threads together use at least ``HOLDING`` of a core."""

HOLDING_LESS = 0.05
"""While other programs compete for the cores, ``HOLDING_LESS`` replaces the threshold ``HOLDING``."""

TAKEN = 0.6
"""The GIL limits a function if more than ``TAKEN`` of the GIL probes find the GIL taken."""

MANY_FOR_A_CORE = 4
HAS_GIL = 0.8
"""If a function runs more than ``MANY_FOR_A_CORE`` threads per core and the GIL limits it, its threads mostly wait for
the GIL. A thread limited by the GIL uses or waits for a core for less than ``HAS_GIL`` of its time."""

ENOUGH_LOOKS = 6
"""Minimum number of GIL probes for a result."""

WAITED = 0.4
"""Storage limits a source if its readers wait for bytes for more than ``WAITED`` of the time."""

WAITED_FOR_MEMORY = 0.5
"""Memory limits a source if its readers wait for the memory limit for more than ``WAITED_FOR_MEMORY`` of the time."""

MOST = 0.5
"""A part that exceeds ``MOST`` (50 %) of a total counts as the main part."""

THROTTLED = 0.10
"""A store counts as throttling if the ratio of retries to requests exceeds ``THROTTLED``."""

SMALL_FILE_NBYTES = 128 << 10
"""For files smaller than ``SMALL_FILE_NBYTES``, opening the file costs more than copying its contents."""

LOOP_IS_BUSY = 0.6
"""The event loop is the limit if its CPU share exceeds ``LOOP_IS_BUSY``."""

LOOP_IS_KEPT_BUSY = 0.3
"""While other programs compete for the cores, ``LOOP_IS_KEPT_BUSY`` replaces the threshold ``LOOP_IS_BUSY``."""

LOOP_IS_BLOCKED = 0.5
"""Coroutines are the limit if their steps block the event loop for more than ``LOOP_IS_BLOCKED`` of the time."""

ALL_CORES = 0.85
"""If more than ``ALL_CORES`` of all cores is in use, the pipeline lacks cores, regardless of other waits."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason why a pipeline stage is slow.

    Attributes:
        name: Name of the cause; see :class:`.bottleneck_result.Limit`.
        detail: Detail of the cause, such as "latency".
        evidence: Measured numbers that support the cause, as text.
        is_wait: True if the workers waited for something other than a core.
    """

    name: str
    detail: str = ""
    evidence: str = ""
    is_wait: bool = False


def cause_of(place: str, window: MeasuredWindow) -> Cause:
    """Determine why the stage at ``place`` is slow."""
    stage = window.stages[place]
    if stage.waits_for == "device":
        return Cause("device", evidence="the pipeline waited for copies to the device", is_wait=True)
    if stage.waits_for in ("network", "disk"):
        return _cause_of_source(stage, place, window)
    if stage.waits_for != "user":
        return _cause_of_step(stage, place, window)
    if stage.runs_in == "loop":
        return _cause_of_coroutine(stage, place, window)
    return _cause_of_function(stage, place, window)


def uses_all_cores(window: MeasuredWindow) -> bool:
    """Return True if the pipeline uses almost all cores."""
    return window.cores_used > ALL_CORES * window.cpus


# -- functions


def _cause_of_function(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    busy_s, extra = max(1e-9, stage.busy_s), stage.extra
    if stage.transfer_s > stage.busy_s:
        return Cause(
            "transfer", evidence=f"sending rows took {stage.transfer_s / busy_s:.1f} times as long as processing them"
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
    """Return True if the threads of a function used a core, or were ready to run but preempted."""
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
    """Return the fraction of a function's time during which it used or waited for a core; None if not measured."""
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
    """Return the share of the time during which a stage's coroutines blocked their event loop."""
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
        return Cause("throttle", evidence=f"{refused:.0%} of the requests were retried", is_wait=True)
    if window.memory_wait_s > WAITED_FOR_MEMORY * window.seconds:
        evidence = f"readers waited a total of {window.memory_wait_s:.1f} s for free memory"
        return Cause("memory", evidence=evidence, is_wait=True)
    if stage.waits_for == "network":
        return _cause_of_remote_source(stage, place, window)
    waited_s = storage.get("disk_wait_s", 0.0)
    if waited_s > WAITED * window.seconds:
        return Cause("disk", evidence=f"reads waited a total of {waited_s:.1f} s for the file system", is_wait=True)
    return _cause_of_reading(stage, place, window)


def _cause_of_remote_source(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    waited_s = stage.extra.get(BYTES_WAIT, 0.0)
    if waited_s < WAITED * window.seconds_of(place):
        return _cause_of_reading(stage, place, window)
    first_byte_s, body_s = (window.storage.get(name, 0.0) for name in ("first_byte_s", "body_s"))
    evidence = f"readers waited a total of {waited_s:.1f} s for data"
    if first_byte_s + body_s == 0.0:
        return Cause("network", evidence=evidence, is_wait=True)
    share = first_byte_s / (first_byte_s + body_s)
    return Cause(
        "network",
        "latency" if share > MOST else "bandwidth",
        f"{evidence}; {share:.0%} of the request time passed before the first byte",
        is_wait=True,
    )


def _cause_of_reading(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    """Determine the cause for a source whose readers did not wait: "files" (many small files), "cpu" or "unclear"."""
    seconds, files = window.seconds_of(place), stage.extra.get(FETCHES, 0)
    nbytes = stage.extra.get(FETCHED, 0) / max(1, files)
    if files > seconds and nbytes < SMALL_FILE_NBYTES and stage.cpu_s < MOST * seconds:
        size = f"{as_size(int(nbytes))} each"
        where = "network" if stage.waits_for == "network" else "disk"
        return Cause("files", evidence=f"{files / seconds:,.0f} files a second, {size}, and no wait for the {where}")
    if stage.cpu_s < COMPUTES_ALONE * seconds and not window.is_contended:
        return NOTHING_FOUND
    return Cause("cpu", stage.work, f"it used {_cores(stage, place, window):.1f} of {window.cpus} cores")


# -- other stages


def _cause_of_step(stage: StageCounters, place: str, window: MeasuredWindow) -> Cause:
    if ON_DISK in stage.extra and stage.cpu_s < MOST * stage.busy_s:
        return Cause("disk", evidence="rows wait in a spill file", is_wait=True)
    used = f"it used {_cores(stage, place, window):.1f} of {window.cpus} cores"
    return Cause("cpu", _work(stage), used)


def _cores(stage: StageCounters, place: str, window: MeasuredWindow) -> float:
    return stage.cpu_s / window.seconds_of(place)


def _work(stage: StageCounters) -> str:
    return stage.work or _function(stage)


def _function(stage: StageCounters) -> str:
    """Return the name of the stage's user function, or the stage name if the stage has no function."""
    name = stage.what.partition(" (")[0] if stage.waits_for == "user" else ""
    return name or stage.name.rpartition("/")[2]


NOTHING_FOUND: Final = Cause("unclear", evidence="no stage was busy or waiting most of the time")
