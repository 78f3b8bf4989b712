"""What a report advises: only options that the stage takes, with another value than the one in force."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from applied_changes import with_change

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.metrics.bottleneck_result import MeasuredChange
from aiostream_data.plan import operators as op
from aiostream_data.plan.advice import RULES, Advice, Case, advise
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.ranks import for_rank
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.ranks import Ranks, Sharing

pytestmark = pytest.mark.filterwarnings("ignore::aiostream_data.HiddenStateWarning")  # a lock makes functions slow

NUMBERS = Dataset.range(1_000)
GIB = 1 << 30


def plain(value: Any) -> Any:
    return value


def with_rng(value: Any, rng: np.random.Generator) -> Any:
    return value


def with_state(value: Any, state: int) -> Any:
    return value


def make_state() -> int:
    return 1


async def awaited(value: Any) -> Any:
    return value


def counting() -> Iterator[int]:
    yield from range(10)


async def counting_async() -> AsyncIterator[int]:
    yield 1


def rows_of(value: Any) -> list[Any]:
    return [value]


def locked() -> Callable[[Any], Any]:
    """Return a function that cannot be sent to a process."""
    lock = threading.Lock()

    def function(value: Any) -> Any:
        with lock:
            return value

    return function


def calls() -> Iterator[Dataset[Any]]:
    """Yield maps and filters with all options that the API takes together."""
    functions: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (plain, {}),
        (with_rng, {}),
        (with_state, {"init": make_state}),
        (awaited, {}),
        (locked(), {}),
        (abs, {}),
    ]
    how = itertools.product(
        functions,
        ("thread", "process", "inline", asd.AUTO),
        (asd.AUTO, 1, 2, 16, 128, 2_000),
        ({}, {"ordered": False}, {"batched": True}, {"timeout": 5.0}),
    )
    for (function, needed), executor, concurrency, more in how:
        options = {"executor": executor, "concurrency": concurrency, **needed}
        for method in (NUMBERS.map, NUMBERS.filter):
            try:
                yield method(function, **options, **more)
            except (PlanError, StageBuildError, TypeError):
                continue


def sources() -> Iterator[Dataset[Any]]:
    ahead: list[Any] = [asd.AUTO, 1, 300]
    for cycle_length, read_ahead in itertools.product((1, 4, 64, 100), ahead):
        options: dict[str, Any] = {"cycle_length": cycle_length, "read_ahead": read_ahead}
        yield Dataset.from_tfrecord("data/*.tfrecord", **options)
        yield Dataset.from_text(Dataset.list_files("data/*.txt"), **options).repeat()
        yield Dataset.from_fixed_length(["a", "b"], 10, **options).cache().repeat()
        yield Dataset.from_files("data/*.jpg", read_ahead=read_ahead)
    yield Dataset.from_tfrecord("data/*").parse_example({"x": asd.FixedLen((), np.int64)})
    yield Dataset.from_generator(counting)
    yield Dataset.from_generator(counting_async)
    yield Dataset.from_iterable([1, 2, 3])
    yield Dataset.list_files("data/*")


def others() -> Iterator[Dataset[Any]]:
    rows = Dataset.from_tensor_slices({"x": np.zeros((10, 4))})
    yield from (NUMBERS.interleave(rows_of, cycle_length=cycle) for cycle in (1, 8, 64, 1_000))
    yield NUMBERS.flat_map(rows_of)
    yield from (rows.batch(4), rows.padded_batch(4), rows.batch(4).unbatch(), rows.window(3), rows.batch(4).rebatch(2))
    yield from (NUMBERS.shuffle(10), NUMBERS.shuffle(), NUMBERS.cache(), NUMBERS.repeat(), NUMBERS.take(3))
    yield from (NUMBERS.prefetch(2), NUMBERS.enumerate(), NUMBERS.shard(2, 0))
    yield Dataset.zip((NUMBERS.map(plain), Dataset.from_generator(counting)))
    yield Dataset.sample_from([NUMBERS, NUMBERS.map(plain)], [0.5, 0.5]).batch(2)
    yield NUMBERS.map(plain).batch(4).in_subprocess(2)
    yield NUMBERS.map(plain, executor="process").filter(plain).batch(4)
    yield NUMBERS.map(locked()).batch(4)
    yield NUMBERS.batch(4).to_device("cpu")


KNOWN = ("cpus", "workers", "shards", "has_idle_cores", "transfer", "dropped")
ENVIRONMENTS: list[dict[str, Any]] = [
    dict(zip(KNOWN, values, strict=True))
    for values in (
        (1, 1, None, True, 0.0, 0.0),
        (1, 1, 1, False, 0.0, 0.99),
        (2, 1, 2, True, 0.5, 0.99),
        (2, 2, 100, False, 50.0, 0.0),
        (2, 8, 100, True, 50.0, 0.0),
        (16, 16, 3, False, 1.0, 0.0),
        (16, 64, 1, True, 100.0, 0.5),
        (96, 128, 10_000, True, 0.0, 0.0),
        (96, 2_000, 0, True, 0.0, 0.0),
    )
]
MEMORY: list[dict[str, Any]] = [
    {"memory_limit": limit, "memory_default": default, "caches_shards": caches}
    for limit, default, caches in ((1 << 20, GIB, False), (GIB, GIB, True), (4 * GIB, GIB, False))
]


def cases(dataset: Dataset[Any]) -> Iterator[Case]:
    """Yield every stage of a data set as the limit, for every cause."""
    plan = dataset.plan
    for node, cause, number in itertools.product(walk(plan), RULES, range(len(ENVIRONMENTS))):
        known = {**ENVIRONMENTS[number], **MEMORY[number % len(MEMORY)]}
        yield Case(cause=cause, node=node, plan=plan, **known)
        if isinstance(node, op.Interleave):
            yield Case(cause=cause, node=None, outer=node, plan=plan, **known)


@pytest.mark.parametrize("make", [calls, sources, others])
def test_every_option_that_is_proposed_is_taken_by_the_api_and_not_in_force(
    make: Callable[[], Iterator[Dataset[Any]]],
) -> None:
    tried: set[tuple[int, MeasuredChange]] = set()
    kept = list(make())  # so that no two of them have one identity
    for dataset in kept:
        for case in cases(dataset):
            for advice in advise(case):
                if advice.change is not None and (id(dataset), advice.change) not in tried:
                    tried.add((id(dataset), advice.change))
                    check_change(dataset, case, advice.change)
    assert len(tried) > 10


def check_change(dataset: Dataset[Any], case: Case, change: MeasuredChange) -> None:
    """Set the option by the API, and hold it against what there is."""
    changed, options = with_change(dataset, change)
    assert changed.plan is not dataset.plan or options
    if change.option == "memory_limit":
        assert change.value > case.memory_limit
    if change.option == "workers":
        assert change.value <= case.cpus


@pytest.mark.parametrize("make", [calls, sources, others])
def test_what_is_proposed_changes_the_stage_that_limits(make: Callable[[], Iterator[Dataset[Any]]]) -> None:
    for dataset in make():
        for case in cases(dataset):
            meant = case.node or case.outer
            assert meant is not None
            for change in (advice.change for advice in advise(case) if advice.change is not None):
                assert change.call in (meant.method, "open", "in_subprocess")


def advised(dataset: Dataset[Any], cause: str, kind: type[Node], **known: Any) -> list[Advice]:
    node = next(node for node in walk(dataset.plan) if isinstance(node, kind))
    defaults: dict[str, Any] = {"cpus": 2, "memory_limit": GIB, "memory_default": GIB}
    return advise(Case(cause=cause, node=node, plan=dataset.plan, **(defaults | known)))


def options(found: list[Advice]) -> dict[str, Any]:
    return {advice.change.option: advice.change.value for advice in found if advice.change is not None}


# -- what is in force is not proposed


@pytest.mark.parametrize("cause", sorted(RULES))
def test_processes_are_never_proposed_to_a_function_in_processes(cause: str) -> None:
    found = advised(NUMBERS.map(plain, executor="process"), cause, op.Map)
    assert options(found).get("executor") != "process"
    assert not any("process'" in advice.sentence for advice in found)


def test_a_function_on_threads_that_holds_the_gil_is_sent_to_processes() -> None:
    assert options(advised(NUMBERS.map(plain), "gil", op.Map)) == {"executor": "process"}


def test_concurrency_is_left_to_auto_once() -> None:
    assert options(advised(NUMBERS.map(plain, concurrency=1), "cpu", op.Map)) == {"concurrency": asd.AUTO}
    assert options(advised(NUMBERS.map(plain), "cpu", op.Map)) == {}


def test_no_more_calls_that_compute_are_proposed_than_there_are_cores() -> None:
    assert options(advised(NUMBERS.map(plain, concurrency=2), "cpu", op.Map)) == {}


@pytest.mark.parametrize("cause", sorted(RULES))
@pytest.mark.parametrize("concurrency", [8, 16, 128, 256])
def test_fewer_calls_than_run_at_once_are_never_proposed(cause: str, concurrency: int) -> None:
    found = options(advised(NUMBERS.map(plain, concurrency=concurrency), cause, op.Map, workers=concurrency))
    assert found.get("concurrency") is not asd.AUTO
    assert found.get("concurrency", 1_000) > concurrency


def test_no_more_calls_are_proposed_than_the_cores_have_room_for() -> None:
    waiting = NUMBERS.map(plain, concurrency=32)
    assert options(advised(waiting, "waiting", op.Map, workers=32, cores=0.5, loop_cores=0.5)) == {"concurrency": 64}
    assert options(advised(waiting, "waiting", op.Map, workers=32, cores=1.5, loop_cores=0.2)) == {}


@pytest.mark.parametrize("cpus", [2, 4, 16])
@pytest.mark.parametrize(
    ("row_cpu_s", "cpu_share"), [(5e-6, 0.9), (5e-6, 0.001), (1e-3, 0.02), (1e-3, 0.2), (0.1, 1.0)]
)
@pytest.mark.parametrize("workers_of_auto", [1, 2, 8])
def test_whoever_follows_all_advice_never_comes_back_to_an_earlier_setting(
    cpus: int, row_cpu_s: float, cpu_share: float, workers_of_auto: int
) -> None:
    causes = ["cpu", "gil", "waiting"] if cpu_share < 0.5 else ["cpu", "gil"]

    def follow(setting: dict[str, Any], earlier: list[dict[str, Any]]) -> None:
        assert setting not in earlier, [*earlier, setting]
        concurrency = setting["concurrency"]
        known: dict[str, Any] = {"cpus": cpus, "row_cpu_s": row_cpu_s, "cpu_share": cpu_share, "transfer": 99.0}
        known["workers"] = concurrency if isinstance(concurrency, int) else workers_of_auto
        for cause in [*causes, "transfer"]:
            for option, value in options(advised(NUMBERS.map(plain, **setting), cause, op.Map, **known)).items():
                if option in setting:
                    follow(setting | {option: value}, [*earlier, setting])

    for executor, concurrency in itertools.product(("thread", "inline"), (asd.AUTO, 1, 2, 64)):
        follow({"executor": executor, "concurrency": concurrency}, [])


def test_a_function_comes_back_from_processes_where_its_rows_travel_for_longer_than_they_are_worked_on() -> None:
    away = NUMBERS.map(plain, executor="process")
    small, large = {"row_cpu_s": 5e-6}, {"row_cpu_s": 1e-3, "row_nbytes": 2e6}
    for known in (small, large):
        assert options(advised(away, "transfer", op.Map, transfer=4.0, **known)) == {"executor": "thread"}
        assert options(advised(NUMBERS.map(plain), "gil", op.Map, **known)) == {}
    assert options(advised(away, "transfer", op.Map, transfer=4.0, row_cpu_s=1e-3)) == {}


def test_coroutines_that_only_are_many_are_not_told_to_be_plain_functions() -> None:
    waiting = NUMBERS.map(awaited, concurrency=1_024)
    assert "(def)" in advised(waiting, "loop", op.Map)[0].sentence
    assert "batch()" in advised(waiting, "loop", op.Map, blocks_loop=False)[0].sentence


@pytest.mark.parametrize(
    ("used", "who"),
    [
        ({"cores": 1.8, "cores_of_process": 1.9}, "the 2 cores are in use: "),
        ({"cores": 0.5, "cores_of_process": 1.7}, "other threads of this process used 1.2 of the 2 cores: "),
        ({"cores": 0.5, "cores_of_process": 0.6, "cores_of_others": 1.3}, "other programs used 1.3 of the 2 cores: "),
        (
            {"cores": 0.5, "cores_of_process": 1.0, "cores_of_others": 0.9},
            "other threads of this process used 0.5 and other programs used 0.9 of the 2 cores: ",
        ),
        ({"cores": 0.5, "cores_of_process": 0.6}, "its threads waited for cores: "),
    ],
)
def test_it_is_said_who_uses_the_cores(used: dict[str, float], who: str) -> None:
    found = advised(NUMBERS.map(plain), "cpu", op.Map, has_idle_cores=False, **used)
    assert [advice.sentence for advice in found] == [f"{who}make the function cheaper, or use more cores"]


def test_calls_that_wait_are_more_each_time_and_in_the_end_enough() -> None:
    workers, proposed = 1, []
    while found := options(advised(NUMBERS.map(plain, concurrency=workers), "waiting", op.Map, workers=workers)):
        workers = found["concurrency"]
        proposed.append(workers)
    assert proposed == [8, 32, 128]


# -- nor what is impossible


@pytest.mark.parametrize("cause", sorted(RULES))
def test_cycle_length_is_never_proposed_to_from_files(cause: str) -> None:
    for known in ENVIRONMENTS:
        found = advised(Dataset.from_files("data/*.jpg").repeat(), cause, ReadFiles, **known)
        assert "cycle_length" not in options(found)
        assert not any("cycle_length" in advice.sentence for advice in found)


def test_from_files_opens_more_files_ahead_where_they_are_late() -> None:
    files = Dataset.from_files("data/*.jpg", read_ahead=16)
    assert options(advised(files, "network", ReadFiles, shards=1_000)) == {"read_ahead": 64}


def test_from_files_with_an_automatic_read_ahead_is_given_no_number() -> None:
    assert options(advised(Dataset.from_files("data/*.jpg"), "network", ReadFiles, shards=1_000)) == {}


@pytest.mark.parametrize("cause", sorted(RULES))
@pytest.mark.parametrize("factory", [counting, counting_async])
def test_no_option_is_proposed_to_a_generator_which_takes_none(cause: str, factory: Callable[[], Any]) -> None:
    found = advised(Dataset.from_generator(factory), cause, Node, memory_default=0)
    assert options(found) == {}
    assert not any(word in advice.sentence for advice in found for word in ("concurrency", "executor", "cycle_length"))


def test_no_more_shards_are_read_at_once_than_there_are() -> None:
    files = Dataset.from_tfrecord("data/*")
    assert options(advised(files, "network", ReadFiles, shards=3)) == {"cycle_length": 3}
    assert options(advised(files, "network", ReadFiles, shards=1)) == {}


def test_a_function_that_reaches_no_process_is_not_sent_there_and_the_reason_is_told() -> None:
    found = advised(NUMBERS.map(locked()), "gil", op.Map)
    assert options(found) == {}
    assert "cannot be pickled" in found[0].sentence
    assert "lock" in found[0].sentence


def test_a_function_whose_init_reaches_no_process_is_not_sent_there() -> None:
    function = locked()
    assert options(advised(NUMBERS.map(with_state, init=lambda: function(1)), "gil", op.Map)) == {}


def test_rows_keep_their_order_where_ranks_or_processes_share_them() -> None:
    mapped = NUMBERS.map(plain, concurrency=4)
    assert options(advised(mapped, "skew", op.Map, workers=4)) == {"ordered": False}
    assert options(advised(mapped.in_subprocess(2), "skew", op.Map, workers=4)) == {}
    ranked = for_rank(mapped.batch(2).plan, Ranks(rank=0, world_size=2), Sharing())
    assert options(advised(Dataset(ranked), "skew", op.Map, workers=4)) == {}


def test_a_filter_has_no_order_to_give_up() -> None:
    assert options(advised(NUMBERS.filter(plain, concurrency=4), "skew", op.Filter, workers=4)) == {}


def test_flat_map_reads_one_data_set_at_a_time_and_interleave_is_named_instead() -> None:
    plan = NUMBERS.flat_map(rows_of).plan
    assert isinstance(plan, op.Interleave)
    (advice,) = advise(Case(cause="network", outer=plan, plan=plan, cpus=2))
    assert advice.change is None
    assert "interleave(cycle_length=16)" in advice.sentence


def test_no_processes_are_added_to_a_chain_that_has_some_or_does_not_reach_them() -> None:
    chain = NUMBERS.map(plain).batch(4)
    assert options(advised(chain, "cpu", op.Batch)) == {"workers": 2}
    assert options(advised(chain.in_subprocess(), "cpu", op.Batch)) == {}
    assert options(advised(NUMBERS.map(locked()).batch(4), "cpu", op.Batch)) == {}
    assert options(advised(chain, "cpu", op.Batch, has_idle_cores=False)) == {}


def test_processes_are_no_help_for_what_all_of_them_would_do() -> None:
    chain = NUMBERS.shuffle(10).batch(4)
    assert options(advised(chain, "cpu", op.Shuffle)) == {}
    assert options(advised(chain, "cpu", op.Batch)) == {"workers": 2}


def test_no_more_memory_is_proposed_than_a_loader_takes_by_default() -> None:
    chain = Dataset.from_tfrecord("data/*")
    assert options(advised(chain, "memory", ReadFiles, memory_limit=GIB // 2)) == {"memory_limit": GIB}
    assert options(advised(chain, "memory", ReadFiles, memory_limit=2 * GIB)) == {}


def test_a_shard_cache_is_proposed_once_and_only_where_shards_are_read_again() -> None:
    files = Dataset.from_tfrecord("data/*", cycle_length=64)

    def says_cache(dataset: Dataset[Any], **known: Any) -> bool:
        return any("shard_cache" in advice.sentence for advice in advised(dataset, "network", ReadFiles, **known))

    assert says_cache(files.repeat())
    assert not says_cache(files)
    assert not says_cache(files.cache().repeat())
    assert not says_cache(files.repeat(), caches_shards=True)


def test_the_training_loop_is_given_no_option() -> None:
    case = Case(cause="consumer", plan=NUMBERS.plan, cpus=2)
    assert [advice.change for advice in advise(case)] == [None]


def test_an_advice_names_the_call_that_it_is_about() -> None:
    (advice, *_) = advised(NUMBERS.map(plain, concurrency=1), "waiting", op.Map)
    assert advice.change is not None
    assert str(advice.change) == "map(concurrency=8)"
    assert advice.change.what.startswith("plain (")


def test_every_cause_has_something_to_say_of_the_stage_that_it_is_found_in() -> None:
    found_in = {
        "cpu": NUMBERS.map(plain),
        "gil": NUMBERS.map(plain),
        "waiting": NUMBERS.map(plain),
        "skew": NUMBERS.map(plain),
        "transfer": NUMBERS.map(plain, executor="process"),
        "loop": NUMBERS.map(awaited),
        **{cause: Dataset.from_tfrecord("data/*") for cause in ("network", "throttle", "disk", "files")},
        "memory": NUMBERS.shuffle(100),
        "device": NUMBERS.batch(4).to_device("cpu"),
        **dict.fromkeys(("consumer", "unclear", "not enough data"), NUMBERS),
    }
    assert found_in.keys() == RULES.keys()
    for cause, dataset in found_in.items():
        case = Case(cause=cause, node=dataset.plan, plan=dataset.plan, cpus=2)
        assert advise(case), cause
        assert advise(replace(case, has_idle_cores=False)), cause
