"""Advise what to change about the slowest stage: only options that it accepts and that are not set already.

How this works. Each cause has rules, best first. A rule looks at the node and its options, and returns an advice or
None. An advice with a :class:`.verdict.MeasuredChange` has been checked: the method takes the option, the value
differs from the one in force, and the chain can be built with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.metrics.sizes import as_size
from aiostream_data.metrics.verdict import MeasuredChange
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
"""Most calls at once on threads that are advised: more threads take more time than they save."""

FEW: Final = 8
"""So many calls may always wait at once."""

MOST_COROUTINES: Final = 1024
MOST_SHARDS: Final = 64
MOST_AHEAD: Final = 256

MOST_DROPPED: Final = 0.9
"""Rows of which filters drop this share should not be worked on before."""

HARDLY: Final = 0.05
LITTLE_S: Final = 200e-6
"""Below this share of its time on a core, and this time for a row, a function does nothing but wait."""

TO_PROCESS_S: Final = 20e-6
TO_PROCESS_NBYTES_PER_S: Final = 1e9
"""About what a row costs on its way to a process and back. Less work than that is not sent there."""

MORE: Final = 1.5
"""Fewer more calls than so many times those at once are not worth a change."""

MOSTLY: Final = 0.6
"""A function that uses this share of all cores is what uses them."""

NOTABLE: Final = 0.2
"""Cores that are worth telling."""

MOST_SENTENCES: Final = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stage that limits a pipeline, and what is known of it.

    Attributes:
        cause: As of :class:`.verdict.Limit`.
        node: The node of the stage, as it runs; None for the consumer, and for data sets that a function made.
        outer: The ``interleave()`` or ``flat_map()`` whose function made the data set of the stage.
        plan: The whole plan, as it runs.
        cpus: Cores that the process may use.
        has_idle_cores: There are cores for more work at once.
        dropped: Share of the stage's rows that filters behind it drop.
        workers: Calls at once.
        cores, cores_of_process, cores_of_others: Cores that the stage, this process and other programs used.
        loop_cores: Share of a core that its event loop used.
        cpu_share: Share of its calls' time on a core.
        row_cpu_s, row_nbytes: CPU seconds of a row, and bytes of what it is and becomes.
        blocks_loop: What its coroutines do between their awaits is what keeps the event loop busy.
        transfer: Seconds that rows travel to processes, for each second of work on them.
        shards: Shards of a source; None where that is not known.
        memory_limit, memory_default: Bytes that the loader may hold, and would by default.
        caches_shards: It was opened with ``shard_cache=``.
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
    """A sentence without its full stop, and the option that it is about, if it is about one."""

    sentence: str
    change: MeasuredChange | None = None


Rule: TypeAlias = Callable[[Case], Advice | None]


def advise(case: Case) -> list[Advice]:
    """Return what to do, best first; empty where nothing helps."""
    found = (rule(case) for rule in RULES.get(case.cause, ()))
    return [advice for advice in found if advice is not None][:MOST_SENTENCES]


def _set(node: Node, option: str, value: Any, why: str) -> Advice:
    change = MeasuredChange(call=node.method, what=subject_of(node), option=option, value=value)
    return Advice(f"set {option}={value!r} in {node.method}(): {why}", change)


# -- functions


def _call(case: Case) -> Call | None:
    """Return the node where it calls a function of the user."""
    return case.node if isinstance(case.node, Call) and not isinstance(case.node, ParseRows) else None


def _plain_call(case: Case) -> Call | None:
    node = _call(case)
    return None if node is None or node.is_coroutine else node


def leave_inline(case: Case) -> Advice | None:
    """Let a function run on threads that runs inline."""
    node = _plain_call(case)
    if node is None or node.executor != "inline":
        return None
    return _set(node, "executor", "thread", "inline makes one call after another")


def as_many_calls_as_cores(case: Case) -> Advice | None:
    """Let the engine choose how many calls that compute run at once, where there are fewer than cores.

    Fewer calls are never proposed: a function that waits as well would become slower, and be told to run more of them.
    """
    node = _plain_call(case)
    if node is None or node.executor == "inline" or not isinstance(node.concurrency, int):
        return None
    if node.concurrency < case.cpus:
        return _set(node, "concurrency", AUTO, f"there are {case.cpus} cores")
    return None


def run_in_processes(case: Case) -> Advice | None:
    """Move a function that holds the GIL to processes."""
    node = _plain_call(case)
    if node is None or node.executor not in ("thread", "inline") or sys.platform == "win32" or case.cpus < 2:
        return None
    if not _is_worth_the_way(case) or _hardly_computes(case):
        return None
    for function in (node.function_called, node.init):
        obstacle = None if function is None else obstacle_to_processes(function)
        if obstacle is not None:
            return Advice(f"processes would help, but the function {obstacle}")
    return _set(node, "executor", "process", "threads take the GIL from each other")


def _is_worth_the_way(case: Case) -> bool:
    """Return True for a function that works for longer than its rows travel to a process, in processes or not."""
    return case.row_cpu_s >= TO_PROCESS_S + case.row_nbytes / TO_PROCESS_NBYTES_PER_S


def _hardly_computes(case: Case) -> bool:
    """Return True for a function that threads are enough for, in processes and on threads alike."""
    return case.cpu_share < HARDLY and case.row_cpu_s < LITTLE_S


def work_on_arrays(case: Case) -> Advice | None:
    """Have the function called for many rows at once."""
    node = _plain_call(case)
    if not isinstance(node, Map) or node.batched or node.wants_rng:
        return None
    return Advice("a function that takes whole arrays, with batched=True, is called once for many rows")


def filter_first(case: Case) -> Advice | None:
    """Work on fewer rows."""
    if case.dropped < MOST_DROPPED:
        return None
    return Advice(
        f"a filter() behind it drops {case.dropped:.0%} of its rows: filter before it, if that can be decided"
    )


def cheaper_function(case: Case) -> Advice | None:
    """Advise less work or more cores."""
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
    """Let more calls wait at once."""
    node = _call(case)
    if node is None or node.executor == "inline":
        return None
    now = node.concurrency if isinstance(node.concurrency, int) else max(case.workers, case.cpus)
    value = min(_most_calls(node, case), max(FEW, 4 * case.workers))
    if value < MORE * case.workers or value <= now:
        return None
    return _set(node, "concurrency", value, f"calls wait, {case.workers} at once")


def _most_calls(node: Call, case: Case) -> int:
    """Return how many calls can wait at once, with a core left for each that has something to do."""
    if node.is_coroutine:
        return MOST_COROUTINES
    most = 4 * case.cpus if node.executor == "process" else MOST_THREADS
    cores = case.cores + case.loop_cores
    return min(most, max(FEW, int(case.workers * case.cpus / cores))) if cores else most


def wait_on_threads(case: Case) -> Advice | None:
    """Move a function that waits from processes to threads, of which there can be far more."""
    node = _plain_call(case)
    if node is None or node.executor != "process" or not _hardly_computes(case):
        return None
    return _set(node, "executor", "thread", "a function that waits needs no process, and threads are cheaper")


def make_it_a_coroutine(case: Case) -> Advice | None:
    """Await instead of blocking threads."""
    if _plain_call(case) is None:
        return None
    if case.workers >= MOST_THREADS:
        return Advice("a coroutine function can wait for thousands of rows at once, where more threads would cost more")
    return Advice("a coroutine function can wait for hundreds of rows at once")


def make_it_plain(case: Case) -> Advice | None:
    """Keep work off the event loop."""
    if isinstance(case.node, (Generator, PythonIterable)):
        return Advice("yield only the name or number of each row, and load the row in a plain function in map()")
    if _call(case) is None:
        return None
    if not case.blocks_loop:
        return Advice(
            "each call costs some of the one core of the event loop: let a call take several rows, with batch()"
        )
    return Advice(
        "write it as a plain function (def), which runs on threads, or await an async client instead of blocking"
    )


def work_here(case: Case) -> Advice | None:
    """Bring a function back from processes that costs less than the way there."""
    node = _plain_call(case)
    if node is None or node.executor != "process" or case.transfer < case.cpus or _is_worth_the_way(case):
        return None
    return _set(node, "executor", "thread", "the way to a process takes longer than the work there")


def send_less(case: Case) -> Advice | None:
    """Make what travels smaller."""
    if _plain_call(case) is None:
        return None
    return Advice("send less: select what the function needs before it, and let it return small arrays")


def give_rows_as_they_come(case: Case) -> Advice | None:
    """Let other rows pass a slow one."""
    node = _call(case)
    if not isinstance(node, Map) or not node.ordered or node.executor == "inline" or case.workers < 2:
        return None
    shares_rows = (isinstance(each, RankShard) or getattr(each, "workers", 1) > 1 for each in walk(case.plan))
    if any(shares_rows):  # ranks and processes find their rows by the one order that there is
        return None
    return _set(node, "ordered", False, "other rows then pass a slow one")


def split_slow_rows(case: Case) -> Advice | None:
    """Cut what takes long."""
    return Advice("split the slow rows, or give them a timeout=") if _call(case) is not None else None


# -- sources


def more_data_sets_at_once(case: Case) -> Advice | None:
    """Open more of the data sets that a function makes."""
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
    """Read more shards at once."""
    node = case.node
    if not isinstance(node, ReadFiles) or node.format.whole:
        return None
    most = min(MOST_SHARDS, MOST_SHARDS if case.shards is None else case.shards)
    if node.cycle_length >= most:
        return None
    why = f"it is {node.cycle_length} now; the order of rows changes"
    return _set(node, "cycle_length", min(most, _more(node.cycle_length, most)), why)


def a_shard_for_each_core(case: Case) -> Advice | None:
    """Cut and parse several shards at once, where cores are idle."""
    node = case.node
    if not isinstance(node, ReadFiles) or node.format.whole or case.shards is None or not case.has_idle_cores:
        return None
    most = min(case.shards, case.cpus)
    if node.cycle_length >= most:
        return None
    return _set(node, "cycle_length", most, "one core works on each shard; the order of rows changes")


def more_files_ahead(case: Case) -> Advice | None:
    """Open more small files before their turn."""
    node = case.node
    if not isinstance(node, ReadFiles) or not node.format.whole or (case.shards or 2) < 2:
        return None
    now = node.read_ahead if isinstance(node.read_ahead, int) else 1
    value = min(MOST_AHEAD, _more(now, MOST_AHEAD), case.shards or MOST_AHEAD)
    return None if value <= now else _set(node, "read_ahead", value, f"it is {now} now")


def _more(now: int, most: int) -> int:
    return min(most, max(8, 4 * now))


def closer_or_smaller(case: Case) -> Advice | None:
    """Advise for requests that cannot be spread over more shards."""
    return Advice("compress the data, or run closer to it") if isinstance(case.node, ReadFiles) else None


def keep_shards(case: Case) -> Advice | None:
    """Read remote shards once only."""
    is_read_again = any(isinstance(node, Repeat) for node in walk(case.plan))
    is_kept = case.caches_shards or any(isinstance(node, Cache) for node in walk(case.plan))
    if not is_read_again or is_kept or not isinstance(case.node, ReadFiles):
        return None
    return Advice("open(shard_cache=FOLDER) reads them once only")


def faster_disk(case: Case) -> Advice | None:
    """Advise for reads that are spread already."""
    if isinstance(case.node, Shuffle):
        return Advice("let rows wait in memory, with spill=False and a smaller buffer, or on a faster disk")
    return Advice("put the files on a faster disk")


def pack_files(case: Case) -> Advice | None:
    """Put many small files into few large ones."""
    return Advice("a file costs more than its bytes: write the records into few TFRecord files, with TFRecordWriter")


def cheaper_records(case: Case) -> Advice | None:
    """Spend less on cutting, parsing or decompressing."""
    node = case.node
    if not isinstance(node, ReadFiles):
        return None
    if node.decoders:
        return Advice("parse only the features that are used")
    if case.shards == 1 and case.has_idle_cores:
        return Advice("split the file: each file is read by one core")
    return Advice("store the records with a cheaper compression, such as zstd, or with none")


def parse_less(case: Case) -> Advice | None:
    """Parse fewer features."""
    is_parser = case.node is not None and case.node.method.startswith("parse_")
    return Advice("parse only the features that are used") if is_parser else None


def thin_generator(case: Case) -> Advice | None:
    """Move the work of a generator, which runs on one thread, to where several calls run at once."""
    if not isinstance(case.node, (Generator, PythonIterable)):
        return None
    return Advice("one thread runs it: yield only the name or number of each row, and load the row in map()")


def work_in_map(case: Case) -> Advice | None:
    """Move the work of a function that is called for one row after another."""
    if not isinstance(case.node, Interleave):
        return None
    return Advice(f"do the work in a map() before {case.node.method}(), where several calls run at once")


def ask_less(case: Case) -> Advice | None:
    """Advise for a store that refuses requests."""
    return Advice("spread the keys over more prefixes, or ask for less at once, with max_requests_per_second")


# -- everything else


def more_processes(case: Case) -> Advice | None:
    """Let several processes share the work of a stage that takes one chunk after another."""
    node, plan = case.node, case.plan.input if isinstance(case.plan, ToDevice) else case.plan
    if node is None or isinstance(node, Call) or places_of(case.plan) or case.cpus < 2 or not case.has_idle_cores:
        return None
    if any(isinstance(each, (RankShard, Mix)) for each in walk(plan)) or node not in walk(plan):
        return None
    with suppress(PlanError, StageBuildError):
        if node in walk(place_of_sharing(plan)):  # all processes would do it
            return None
        check_shared(in_subprocess(input=plan, workers=case.cpus))
        change = MeasuredChange(call="in_subprocess", option="workers", value=case.cpus)
        where = " before to_device()" if plan is not case.plan else ""
        return Advice(f"add in_subprocess({case.cpus}){where}: one core does its work, and others are idle", change)
    return None


def smaller_rows(case: Case) -> Advice | None:
    """Copy less."""
    if case.node is None or isinstance(case.node, (Call, ReadFiles, Generator, PythonIterable, Interleave)):
        return None
    return Advice("make its rows smaller, as by smaller dtypes")


def more_memory(case: Case) -> Advice | None:
    """Raise a memory limit that is below what the loader would take by itself."""
    value = min(4 * case.memory_limit, case.memory_default)
    if value <= case.memory_limit:
        return None
    change = MeasuredChange(call="open", option="memory_limit", value=value)
    return Advice(f"open with memory_limit={value}: it is {as_size(case.memory_limit)} now", change)


def smaller_buffers(case: Case) -> Advice | None:
    """Hold less."""
    holds = [node.method for node in walk(case.plan) if isinstance(node, (Shuffle, Cache))]
    return Advice(f"{' and '.join(dict.fromkeys(holds))}() should hold less") if holds else None


def smaller_batches_on_the_way(case: Case) -> Advice | None:
    """Copy fewer bytes to the device."""
    return Advice("send smaller dtypes, and convert them on the device with transform=")


def nothing_to_change(case: Case) -> Advice | None:
    """Report that the pipeline keeps up."""
    return Advice("the pipeline keeps up")


def look_again(case: Case) -> Advice | None:
    """Advise for a report without data."""
    return Advice("run more steps, and ask again")


def look_closer(case: Case) -> Advice | None:
    """Point to more detailed reports."""
    return Advice("the table shows where the time went; loader.dump() shows what each stage does now")


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
"""Rules by cause, best first."""
