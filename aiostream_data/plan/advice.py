"""Advice on how to speed up the slowest stage of a pipeline.

Each cause of a bottleneck has a list of rules, best first. A rule checks the stage's node and its options, and returns
a recommendation or None. If a recommendation has a :class:`.MeasuredChange`, the change sets an accepted option to a
value that differs from the current value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.metrics.bottleneck_result import MeasuredChange
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan.base import AUTO, Node, walk
from aiostream_data.plan.mixing import Mix
from aiostream_data.plan.operators import Cache, Call, Interleave, Map, ParseRows, Repeat, Shuffle, ToDevice
from aiostream_data.plan.rank_nodes import RankShard
from aiostream_data.plan.reaching import obstacle_to_processes
from aiostream_data.plan.shown import subject_of
from aiostream_data.plan.sources import Generator, PythonIterable, ReadFiles
from aiostream_data.plan.subprocess import in_subprocess, places_of
from aiostream_data.plan.worker_share import check_shared, place_of_sharing

MOST_THREADS: Final = 128
"""Maximum number of concurrent calls on threads that a rule recommends. With more than ``MOST_THREADS`` threads, the
overhead exceeds the gain."""

FEW: Final = 8
"""Number of concurrent calls that a rule may always recommend for a waiting function, even if their CPU work exceeds
the cores."""

MOST_COROUTINES: Final = 1024
MOST_SHARDS: Final = 64
MOST_AHEAD: Final = 256

MOST_DROPPED: Final = 0.9
"""If later filters drop more than ``MOST_DROPPED`` of the rows, a rule recommends filtering earlier."""

HARDLY: Final = 0.05
LITTLE_S: Final = 200e-6
"""A function counts as waiting if it uses less than ``LITTLE_S`` CPU seconds per row, and a core for less than
``HARDLY`` of its time."""

TO_PROCESS_S: Final = 20e-6
TO_PROCESS_NBYTES_PER_S: Final = 1e9
"""Approximate speed in bytes per second of sending rows to a process and back. Each row also takes a fixed time of
``TO_PROCESS_S`` seconds."""

MORE: Final = 1.5
"""Minimum ratio of the recommended to the current number of concurrent calls. Rules do not recommend smaller increases
of concurrency."""

MOSTLY: Final = 0.6
"""A function that uses more than ``MOSTLY`` of all cores is reported as their main user."""

NOTABLE: Final = 0.2
"""A message reports the number of used cores only if the number exceeds ``NOTABLE``."""

MOST_SENTENCES: Final = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """Measurements of the stage that limits the speed of a pipeline.

    Attributes:
        cause: Cause of the bottleneck, as in :class:`.bottleneck_result.Limit`.
        node: Plan node of the stage, after rewriting. The node is None for the consumer, and for data sets that a
            function creates.
        outer: The ``interleave()`` or ``flat_map()`` whose function created the stage's data set, or None.
        plan: The whole plan after rewriting.
        cpus: Number of cores available to the process.
        has_idle_cores: True if some cores are unused.
        dropped: Fraction of the stage's rows that later filters drop.
        workers: Number of concurrent calls of the stage's function.
        cores, cores_of_process, cores_of_others: Mean number of cores used by the stage, this process and other
            programs.
        loop_cores: Mean fraction of a core that the event loop uses.
        cpu_share: Fraction of the calls' duration during which the calls use a core.
        row_cpu_s, row_nbytes: CPU seconds per row, and size in bytes of a row together with its result.
        blocks_loop: True if coroutines block the event loop with their own code between awaits.
        transfer: Time to send rows to processes, divided by the time to process these rows.
        shards: Number of shards of a source; None if unknown.
        memory_limit, memory_default: Memory limit of the loader in bytes, and its default.
        caches_shards: True if the loader was opened with ``shard_cache=``.
    """

    cause: str
    node: Node | None = None
    outer: Interleave | None = None
    plan: Node
    cpus: int
    has_idle_cores: bool = True
    dropped: float = 0.0
    workers: int = 1
    cores: float = 0.0
    cores_of_process: float = 0.0
    cores_of_others: float = 0.0
    loop_cores: float = 0.0
    cpu_share: float = 0.0
    row_cpu_s: float = 1.0
    row_nbytes: float = 0.0
    blocks_loop: bool = True
    transfer: float = 0.0
    shards: int | None = None
    memory_limit: int = 0
    memory_default: int = 0
    caches_shards: bool = False


class Advice(NamedTuple):
    """A recommendation: one sentence without a full stop, and the option to change, or None."""

    sentence: str
    change: MeasuredChange | None = None


Rule: TypeAlias = Callable[[Case], Advice | None]


def advise(case: Case) -> list[Advice]:
    """Return the recommendations for a bottleneck, best first; empty if no rule applies."""
    found = (rule(case) for rule in RULES.get(case.cause, ()))
    return [advice for advice in found if advice is not None][:MOST_SENTENCES]


def _set(node: Node, option: str, value: Any, why: str) -> Advice:
    change = MeasuredChange(call=node.method, what=subject_of(node), option=option, value=value)
    return Advice(f"set {option}={value!r} in {node.method}(): {why}", change)


# -- functions


def _call(case: Case) -> Call | None:
    return case.node if isinstance(case.node, Call) and not isinstance(case.node, ParseRows) else None


def _plain_call(case: Case) -> Call | None:
    node = _call(case)
    return None if node is None or node.is_coroutine else node


def leave_inline(case: Case) -> Advice | None:
    """Recommend threads for a function with ``executor="inline"``, which runs one call at a time."""
    node = _plain_call(case)
    if node is None or node.executor != "inline":
        return None
    return _set(node, "executor", "thread", "inline makes one call after another")


def as_many_calls_as_cores(case: Case) -> Advice | None:
    """Recommend automatic concurrency for a CPU-bound function that has fewer concurrent calls than cores.

    The rule never reduces concurrency, because a function that also waits would become slower.
    """
    node = _plain_call(case)
    if node is None or node.executor == "inline" or not isinstance(node.concurrency, int):
        return None
    if node.concurrency < case.cpus:
        return _set(node, "concurrency", AUTO, f"there are {case.cpus} cores")
    return None


def run_in_processes(case: Case) -> Advice | None:
    """Recommend processes for a function whose threads compete for the GIL."""
    node = _plain_call(case)
    if node is None or node.executor not in ("thread", "inline") or sys.platform == "win32" or case.cpus < 2:
        return None
    if not _is_worth_the_way(case) or _hardly_computes(case):
        return None
    for function in (node.function_called, node.init):
        obstacle = None if function is None else obstacle_to_processes(function)
        if obstacle is not None:
            return Advice(f"processes would help, but the function {obstacle}")
    return _set(node, "executor", "process", "threads compete for the GIL")


def _is_worth_the_way(case: Case) -> bool:
    """Return True if processing a row takes longer than sending the row to another process and back."""
    return case.row_cpu_s >= TO_PROCESS_S + case.row_nbytes / TO_PROCESS_NBYTES_PER_S


def _hardly_computes(case: Case) -> bool:
    """Return True if a function uses so little CPU time that threads are sufficient."""
    return case.cpu_share < HARDLY and case.row_cpu_s < LITTLE_S


def work_on_arrays(case: Case) -> Advice | None:
    """Recommend a function that processes many rows per call."""
    node = _plain_call(case)
    if not isinstance(node, Map) or node.batched or node.wants_rng:
        return None
    return Advice("let the function take whole arrays, with batched=True, so that one call processes many rows")


def filter_first(case: Case) -> Advice | None:
    """Recommend filtering rows before a function if later filters drop most of its results."""
    if case.dropped < MOST_DROPPED:
        return None
    return Advice(f"a later filter() drops {case.dropped:.0%} of its rows: filter before it, if possible")


def cheaper_function(case: Case) -> Advice | None:
    """Recommend a faster function or more cores."""
    if _call(case) is None:
        return None
    if case.has_idle_cores:
        return Advice("make the function cheaper")
    return Advice(f"{_who_uses_cores(case)}: make the function cheaper, or use more cores")


def _who_uses_cores(case: Case) -> str:
    if case.cores > MOSTLY * case.cpus:
        return f"the {case.cpus} cores are in use"
    rest = case.cores_of_process - case.cores
    used = {"other threads of this process": rest, "other programs": case.cores_of_others}
    told = [f"{who} used {cores:.1f}" for who, cores in used.items() if cores > NOTABLE]
    return f"{' and '.join(told)} of the {case.cpus} cores" if told else "its threads waited for cores"


def more_calls(case: Case) -> Advice | None:
    """Recommend more concurrent calls for a function that waits, e.g. for a network."""
    node = _call(case)
    if node is None or node.executor == "inline":
        return None
    now = node.concurrency if isinstance(node.concurrency, int) else max(case.workers, case.cpus)
    value = min(_most_calls(node, case), max(FEW, 4 * case.workers))
    if value < MORE * case.workers or value <= now:
        return None
    return _set(node, "concurrency", value, f"calls wait, {case.workers} at once")


def _most_calls(node: Call, case: Case) -> int:
    """Return the maximum number of concurrent calls whose CPU work fits on the available cores."""
    if node.is_coroutine:
        return MOST_COROUTINES
    most = 4 * case.cpus if node.executor == "process" else MOST_THREADS
    cores = case.cores + case.loop_cores
    return min(most, max(FEW, int(case.workers * case.cpus / cores))) if cores else most


def wait_on_threads(case: Case) -> Advice | None:
    """Recommend threads for a function that waits and runs in processes, because threads cost less."""
    node = _plain_call(case)
    if node is None or node.executor != "process" or not _hardly_computes(case):
        return None
    return _set(node, "executor", "thread", "a function that waits needs no process, and threads are cheaper")


def make_it_a_coroutine(case: Case) -> Advice | None:
    """Recommend a coroutine function in place of a function that blocks threads while it waits."""
    if _plain_call(case) is None:
        return None
    if case.workers >= MOST_THREADS:
        return Advice(
            "use a coroutine function: it can wait for thousands of rows at once, and costs less than more threads"
        )
    return Advice("use a coroutine function: it can wait for hundreds of rows at once")


def make_it_plain(case: Case) -> Advice | None:
    """Recommend doing less work on the event loop."""
    if isinstance(case.node, (Generator, PythonIterable)):
        return Advice("yield only the name or number of each row, and load the row in a plain function in map()")
    if _call(case) is None:
        return None
    if not case.blocks_loop:
        return Advice("all calls share the one core of the event loop: process several rows per call, with batch()")
    return Advice(
        "write it as a plain function (def), which runs on threads, or await an async client instead of blocking"
    )


def work_here(case: Case) -> Advice | None:
    """Recommend threads for a function if sending rows to processes takes longer than processing them."""
    node = _plain_call(case)
    if node is None or node.executor != "process" or case.transfer < case.cpus or _is_worth_the_way(case):
        return None
    return _set(node, "executor", "thread", "sending rows to a process takes longer than processing them")


def send_less(case: Case) -> Advice | None:
    """Recommend sending smaller rows to worker processes."""
    if _plain_call(case) is None:
        return None
    return Advice("send less: select only the needed leaves before the function, and return small arrays")


def give_rows_as_they_come(case: Case) -> Advice | None:
    """Recommend ``ordered=False``, so that one slow row does not delay the other rows."""
    node = _call(case)
    if not isinstance(node, Map) or not node.ordered or node.executor == "inline" or case.workers < 2:
        return None
    shares_rows = (isinstance(each, RankShard) or getattr(each, "workers", 1) > 1 for each in walk(case.plan))
    if any(shares_rows):  # ranks and worker processes select their rows by a common order
        return None
    return _set(node, "ordered", False, "other rows then overtake a slow one")


def split_slow_rows(case: Case) -> Advice | None:
    """Recommend splitting slow rows into smaller rows, or setting a timeout."""
    return Advice("split the slow rows, or give them a timeout=") if _call(case) is not None else None


# -- sources


def more_data_sets_at_once(case: Case) -> Advice | None:
    """Recommend reading more data sets concurrently, if a function creates the data sets."""
    outer = case.outer
    if outer is None:
        return None
    if outer.method != "interleave":
        return Advice("interleave(cycle_length=16) reads several data sets at once; flat_map() reads one")
    if outer.cycle_length >= MOST_SHARDS:
        return None
    why = f"it is {outer.cycle_length} now; the order of rows changes"
    return _set(outer, "cycle_length", _more(outer.cycle_length, MOST_SHARDS), why)


def more_shards_at_once(case: Case) -> Advice | None:
    """Recommend reading more shards concurrently."""
    node = case.node
    if not isinstance(node, ReadFiles) or node.format.whole:
        return None
    most = min(MOST_SHARDS, MOST_SHARDS if case.shards is None else case.shards)
    if node.cycle_length >= most:
        return None
    why = f"it is {node.cycle_length} now; the order of rows changes"
    return _set(node, "cycle_length", min(most, _more(node.cycle_length, most)), why)


def a_shard_for_each_core(case: Case) -> Advice | None:
    """Recommend splitting and parsing several shards concurrently if cores are idle."""
    node = case.node
    if not isinstance(node, ReadFiles) or node.format.whole or case.shards is None or not case.has_idle_cores:
        return None
    most = min(case.shards, case.cpus)
    if node.cycle_length >= most:
        return None
    return _set(node, "cycle_length", most, "one core works on each shard; the order of rows changes")


def more_files_ahead(case: Case) -> Advice | None:
    """Recommend opening more files in advance, unless the engine chooses their number."""
    node = case.node
    if not isinstance(node, ReadFiles) or not node.format.whole or (case.shards or 2) < 2:
        return None
    now = node.read_ahead
    if not isinstance(now, int):
        return None
    value = min(MOST_AHEAD, _more(now, MOST_AHEAD), case.shards or MOST_AHEAD)
    return None if value <= now else _set(node, "read_ahead", value, f"it is {now} now")


def _more(now: int, most: int) -> int:
    return min(most, max(8, 4 * now))


def closer_or_smaller(case: Case) -> Advice | None:
    """Recommend compressing the data or running closer to the store, if more concurrent reads are not possible."""
    return Advice("compress the data, or run closer to the store") if isinstance(case.node, ReadFiles) else None


def keep_shards(case: Case) -> Advice | None:
    """Recommend a shard cache for remote shards that the loader reads repeatedly."""
    is_read_again = any(isinstance(node, Repeat) for node in walk(case.plan))
    is_kept = case.caches_shards or any(isinstance(node, Cache) for node in walk(case.plan))
    if not is_read_again or is_kept or not isinstance(case.node, ReadFiles):
        return None
    return Advice("use open(shard_cache=FOLDER) to read each shard only once")


def faster_disk(case: Case) -> Advice | None:
    """Recommend a faster disk, or less use of the disk."""
    if isinstance(case.node, Shuffle):
        return Advice("keep the rows in memory, with spill=False and a smaller buffer, or spill to a faster disk")
    return Advice("put the files on a faster disk")


def pack_files(case: Case) -> Advice | None:
    """Recommend merging many small files into a few large ones."""
    return Advice(
        "opening files takes most of the time: write the records into few TFRecord files, with TFRecordWriter"
    )


def cheaper_records(case: Case) -> Advice | None:
    """Recommend a cheaper way to parse or decompress records."""
    node = case.node
    if not isinstance(node, ReadFiles):
        return None
    if any(hasattr(decoder, "element_specs") and not decoder.wraps for decoder in node.decoders):
        return Advice("parse only the features that are used")
    if case.shards == 1 and case.has_idle_cores:
        return Advice("split the file: each file is read by one core")
    return Advice("store the records with a cheaper compression, such as zstd, or with none")


def parse_less(case: Case) -> Advice | None:
    """Recommend parsing fewer features."""
    is_parser = case.node is not None and case.node.method.startswith("parse_")
    return Advice("parse only the features that are used") if is_parser else None


def thin_generator(case: Case) -> Advice | None:
    """Recommend moving work from a generator, which runs on one thread, to map(), which runs calls concurrently."""
    if not isinstance(case.node, (Generator, PythonIterable)):
        return None
    return Advice("it runs on one thread: yield only the name or number of each row, and load the row in map()")


def work_in_map(case: Case) -> Advice | None:
    """Recommend moving work from the function of interleave() or flat_map() to map()."""
    if not isinstance(case.node, Interleave):
        return None
    return Advice(f"do the work in a map() before {case.node.method}(), where several calls run at once")


def ask_less(case: Case) -> Advice | None:
    """Recommend fewer requests per second or per prefix, because the store refuses requests."""
    return Advice("spread the keys over more prefixes, or send fewer requests, with max_requests_per_second")


# -- everything else


def more_processes(case: Case) -> Advice | None:
    """Recommend in_subprocess() for a stage that processes only one chunk at a time."""
    node, plan = case.node, case.plan.input if isinstance(case.plan, ToDevice) else case.plan
    if node is None or isinstance(node, Call) or places_of(case.plan) or case.cpus < 2 or not case.has_idle_cores:
        return None
    if any(isinstance(each, (RankShard, Mix)) for each in walk(plan)) or node not in walk(plan):
        return None
    with suppress(PlanError, StageBuildError):
        if node in walk(place_of_sharing(plan)):  # every process would repeat the work of this node
            return None
        check_shared(in_subprocess(input=plan, workers=case.cpus))
        change = MeasuredChange(call="in_subprocess", option="workers", value=case.cpus)
        where = " before to_device()" if plan is not case.plan else ""
        return Advice(f"add in_subprocess({case.cpus}){where}: one core does its work, and others are idle", change)
    return None


def smaller_rows(case: Case) -> Advice | None:
    """Recommend smaller rows for an operator that copies its rows."""
    if case.node is None or isinstance(case.node, (Call, ReadFiles, Generator, PythonIterable, Interleave)):
        return None
    return Advice("make its rows smaller, e.g. with smaller dtypes")


def more_memory(case: Case) -> Advice | None:
    """Recommend a larger memory limit if the current limit is below the default."""
    value = min(4 * case.memory_limit, case.memory_default)
    if value <= case.memory_limit:
        return None
    change = MeasuredChange(call="open", option="memory_limit", value=value)
    return Advice(f"open with memory_limit={value}: it is {as_size(case.memory_limit)} now", change)


def smaller_buffers(case: Case) -> Advice | None:
    """Recommend smaller buffers in shuffle() and cache()."""
    holds = [node.method for node in walk(case.plan) if isinstance(node, (Shuffle, Cache))]
    return Advice(f"reduce the buffers of {' and '.join(dict.fromkeys(holds))}()") if holds else None


def smaller_batches_on_the_way(case: Case) -> Advice | None:
    """Recommend smaller dtypes for batches that are copied to the device."""
    return Advice("send smaller dtypes, and convert them on the device with transform=")


def nothing_to_change(case: Case) -> Advice | None:
    """Report that the pipeline is fast enough for the training loop."""
    return Advice("the pipeline keeps up")


def look_again(case: Case) -> Advice | None:
    """Recommend waiting for a later report if the measurement time is too short."""
    return Advice("run more steps, then report again")


def look_closer(case: Case) -> Advice | None:
    """Recommend reports with more detail if the cause of the bottleneck is unclear."""
    return Advice("see the table for the time of each stage, and loader.dump() for its current activity")


RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "consumer": (nothing_to_change,),
    "cpu": (
        leave_inline,
        as_many_calls_as_cores,
        filter_first,
        a_shard_for_each_core,
        cheaper_records,
        parse_less,
        thin_generator,
        work_in_map,
        cheaper_function,
        more_processes,
        smaller_rows,
    ),
    "gil": (run_in_processes, filter_first, work_on_arrays, cheaper_function),
    "waiting": (
        leave_inline,
        wait_on_threads,
        more_calls,
        more_data_sets_at_once,
        thin_generator,
        work_in_map,
        make_it_a_coroutine,
    ),
    "transfer": (work_here, send_less),
    "loop": (make_it_plain,),
    "skew": (leave_inline, give_rows_as_they_come, split_slow_rows),
    "network": (more_data_sets_at_once, more_shards_at_once, more_files_ahead, keep_shards, closer_or_smaller),
    "throttle": (ask_less,),
    "disk": (more_data_sets_at_once, more_shards_at_once, more_files_ahead, faster_disk),
    "files": (pack_files,),
    "memory": (more_memory, smaller_buffers),
    "device": (smaller_batches_on_the_way,),
    "unclear": (look_closer,),
    "not enough data": (look_again,),
}
"""Rules for each cause of a bottleneck, best first."""
