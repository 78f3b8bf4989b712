"""The report of a loader: stages by function, file and line, and what limits, with what to set."""

from __future__ import annotations

import inspect
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data._engine.flow.stage_counters import Board
from aiostream_data._engine.processes.server_counters import joined_counters
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.loading.diagnosis import diagnosed
from aiostream_data.loading.opening import Opening
from aiostream_data.loading.start import told_of_start
from aiostream_data.metrics.bottleneck_result import Limit, MeasuredChange
from aiostream_data.metrics.counters import BYTES_WAIT, SHARDS, ConsumerCounters, StageCounters
from aiostream_data.metrics.window import CounterMark, MeasuredWindow, between, root_of
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.shown import subject_of

NUMBERS = Dataset.range(1_000)
HERE = "tests/unit/loading/test_report.py"


def double(value: int) -> int:
    return 2 * value


class Adder:
    def __call__(self, value: int) -> int:
        return value + 1


def counting() -> Iterator[int]:
    yield from range(5)


def line_of(function: Callable[..., Any]) -> int:
    return inspect.getsourcelines(function)[1]


def observed(stages: dict[str, StageCounters]) -> MeasuredWindow:
    """Return ten seconds in which the consumer waited nine."""
    nothing: dict[str, Any] = {"elements": 9, "memory_wait_s": 0.0, "storage": {}, "cores_used": 0.5, "loop_cpu_s": 0.1}
    return MeasuredWindow(seconds=10.0, consumer_wait_s=9.0, stages=stages, cpus=2, **nothing)


def limit_of(dataset: Dataset[Any], stages: dict[str, StageCounters]) -> Limit:
    return diagnosed(
        Opening(plan=dataset.plan, run=RunOptions(memory_limit=1 << 30)), rewrite(dataset.plan), observed(stages)
    )


# -- names


def test_a_function_is_named_with_the_line_on_which_it_begins() -> None:
    assert subject_of(NUMBERS.map(double).plan) == f"double ({HERE}:{line_of(double)})"
    assert subject_of(NUMBERS.map(Adder()).plan) == f"Adder ({HERE}:{line_of(Adder.__call__)})"
    assert subject_of(Dataset.from_generator(counting).plan) == f"counting ({HERE}:{line_of(counting)})"


def test_a_lambda_is_named_with_its_own_line() -> None:
    function = lambda value: value  # noqa: E731
    assert subject_of(NUMBERS.map(function).plan) == f"lambda ({HERE}:{function.__code__.co_firstlineno})"


def test_a_function_in_c_is_named_with_the_line_of_the_call() -> None:
    mapped = NUMBERS.map(abs)
    assert subject_of(mapped.plan) == f"abs ({mapped.plan.written_at})"
    assert mapped.plan.written_at is not None


def test_files_are_named_by_their_pattern_which_is_shortened_and_shows_no_secret() -> None:
    files = Dataset.from_tfrecord("https://me:hidden@example.com/" + 40 * "folder/" + "train.tfrecord").plan
    name = subject_of(files).partition(" (")[0]
    assert name.startswith("...")
    assert name.endswith("folder/train.tfrecord")
    assert len(name) == 60
    assert "hidden" not in subject_of(Dataset.from_files("https://me:hidden@example.com/a").plan)
    assert subject_of(Dataset.from_tfrecord(["a", "b", "c"]).plan).startswith("a and 2 more (")


def test_the_table_says_what_each_stage_runs_and_where() -> None:
    with NUMBERS.map(double).batch(10).open() as loader:
        list(loader)
    rows = {line.split()[0]: line for line in str(loader.report()).splitlines() if line}
    assert rows["stage"].endswith("what")
    assert rows["map"].endswith(f"  double ({HERE}:{line_of(double)})")
    assert f"({HERE}:" in rows["batch"]


def test_a_stage_of_an_inner_data_set_is_named_with_the_operator_that_made_it() -> None:
    inner = Dataset.from_generator(counting)
    with Dataset.range(3).interleave(lambda _: inner, cycle_length=1).open() as loader:
        list(loader)
    assert "interleave/from_generator" in [stage.name for stage in loader.stats().stages]


# -- memory


def test_room_kept_free_for_a_step_is_told_as_reserved_and_not_as_decoded(tmp_path: Path) -> None:
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(frame(b"x" * 100_000) * 20)
    with Dataset.from_tfrecord(str(path)).open() as loader:
        list(loader)
    holders = loader.stats().memory.holders
    assert holders["reserved"][1] > 1 << 20
    assert holders.get("decoded", (0, 0))[1] < 1 << 20
    assert "(reserved " in str(loader.stats())


# -- losses


def test_records_that_an_error_policy_left_out_or_replaced_have_a_line(tmp_path: Path) -> None:
    def decode(record: Any) -> int:
        return 6 // int(bytes(record))

    async def divide(number: int) -> int:
        return 6 // (number % 5)

    path = tmp_path / "rows.tfrecord"
    path.write_bytes(frame(b"0") + frame(b"1")[:-1] + b"?" + frame(b"2"))
    with Dataset.from_tfrecord(str(path), on_error="skip").map(decode, on_error="skip").open() as loader:
        assert list(loader) == [3]
    line = "skipped: read_tfrecord 1, map decode 1 (see on_error=)"
    report = loader.report()
    assert line in str(report.stats).splitlines()
    assert line in str(report).splitlines()
    assert line in report._repr_html_()
    with NUMBERS.map(divide, on_error=asd.Replace(0)).open() as loader:
        list(loader)
    assert "replaced: map divide 200 (see on_error=)" in str(loader.stats()).splitlines()


def test_where_nothing_was_lost_there_is_no_such_line() -> None:
    with NUMBERS.map(double, on_error="skip").open() as loader:
        list(loader)
    assert "on_error=" not in str(loader.report())


# -- the start


def begun_after(seconds: float, busy_s: float, wall_s: float, *, dataset: Dataset[Any]) -> str:
    """Return what is said of a map at node 1 that was busy before the first element."""
    consumer = ConsumerCounters(started_at=100.0, first_at=100.0 + seconds)
    stages = {str(number): StageCounters("stage", inputs=(str(number - 1),)) for number in range(4)}
    stages["1"] = StageCounters("map", busy_s=busy_s, workers=2, what="double (train.py:12)", inputs=("0",))
    return told_of_start(consumer, wall_s, stages, dataset.plan)


def test_what_was_done_before_the_first_element_is_told_where_that_took_most_of_the_time() -> None:
    dataset = NUMBERS.map(double).shuffle(500).batch(10)
    busy = "before the first element, map double (train.py:12) was busy for 5.9 s, 2 at once"
    assert begun_after(3.7, 5.9, 4.2, dataset=dataset) == f"{busy}, while shuffle(500) filled its buffer"
    assert begun_after(3.7, 5.9, 9.0, dataset=dataset) == ""
    assert begun_after(0.7, 1.1, 0.8, dataset=dataset) == ""


def test_a_shuffle_that_gives_rows_while_it_grows_or_stands_before_is_not_waited_for() -> None:
    for dataset in (NUMBERS.map(double).shuffle().batch(10), NUMBERS.shuffle(500).map(double).batch(10).enumerate()):
        assert "shuffle" not in begun_after(3.7, 5.9, 4.2, dataset=dataset)


def test_of_a_start_without_work_it_is_told_that_no_stage_was_busy() -> None:
    told = begun_after(3.7, 0.2, 4.2, dataset=NUMBERS.map(double).batch(10))
    assert told == "before the first element, no stage was busy for more than 0.2 s"


def test_the_summary_tells_the_first_element_from_the_waits_since() -> None:
    def slow_start() -> Iterator[int]:
        time.sleep(1.2)
        yield from range(5)

    with Dataset.from_generator(slow_start).open() as loader:
        assert "; the training loop waited 0.00 s" in str(loader.stats())
        list(loader)
    report = loader.report()
    summary = re.search(
        r"in [1-9]\.\d+ s, the first after [1-9]\.\d+ s; since then the training loop waited 0\.", str(report)
    )
    assert summary is not None, str(report)
    assert report.start.startswith(f"before the first element, from_generator slow_start ({HERE}:")
    assert report.start in str(report)
    assert json.loads(report.to_json())["start"] == report.start
    consumer = loader.stats().consumer
    assert 1.0 < consumer.first_wait_s <= consumer.wait_s


# -- when there is nothing to say


def test_below_a_second_the_report_says_that_there_is_not_enough_data() -> None:
    with NUMBERS.map(double).batch(10).open() as loader:
        list(loader)
    limit = loader.report().limit
    assert (limit.stage, limit.cause, limit.changes) == ("pipeline", "not enough data", ())
    assert limit.sentence.endswith("s were observed, and 1 s are needed; run more steps, then report again")
    assert f"limit: not enough data; {limit.evidence}" in str(loader.report())


def test_before_the_first_element_the_report_says_that_there_is_not_enough_data() -> None:
    with NUMBERS.open() as loader:
        assert loader.report().limit.sentence.startswith("not enough data; no element was received")


def test_the_start_does_not_count_as_observed() -> None:
    def slow_start() -> Iterator[int]:
        time.sleep(1.1)
        yield from range(5)

    with Dataset.from_generator(slow_start).open() as loader:
        list(loader)
        assert loader.report().limit.cause == "not enough data"


def test_what_happens_after_the_end_does_not_count() -> None:
    with NUMBERS.batch(10).open() as loader:
        list(loader)
        time.sleep(1.1)
    assert loader.report().limit.cause == "not enough data"


def test_time_between_elements_that_came_together_counts_as_the_consumers() -> None:
    with NUMBERS.open() as loader:
        for number, _ in enumerate(loader):
            if number == 3:
                time.sleep(1.1)
                break
        assert loader.report().limit.cause == "consumer"


def test_a_report_of_a_loader_that_was_closed_stays_the_same() -> None:
    never = threading.Event()

    def waits(number: int) -> int:
        never.wait(0.3)
        return number

    with Dataset.range(6).map(waits, concurrency=1).open() as loader:
        assert list(loader) == [0, 1, 2, 3, 4, 5]
        before = loader.report().limit
    assert before.cause == "waiting"
    assert loader.report().limit == before


# -- what it says


def test_a_limit_names_function_cause_evidence_and_option() -> None:
    dataset = NUMBERS.map(double, concurrency=1).batch(10)
    counters = {"rows": 9, "rows_in": 9, "busy_s": 9.9, "waits_for": "user", "runs_in": "threads"}
    mapped = StageCounters("map", what=subject_of(dataset.map(double).plan), **counters)  # type: ignore[arg-type]
    limit = limit_of(dataset, {"0": StageCounters("range"), "1": mapped})
    assert limit.title == f"map double ({HERE}:{line_of(double)})"
    assert limit.kind == "waiting (double)"
    assert limit.changes == (MeasuredChange(call="map", what=mapped.what, option="concurrency", value=8),)
    advice = (
        "set concurrency=8 in map(): calls wait, 1 at once; "
        "use a coroutine function: it can wait for hundreds of rows at once"
    )
    assert limit.sentence == f"{limit.title}: waiting (double); calls waited 100% of their time, 1 at once; {advice}"
    assert str(limit) == limit.sentence


def test_a_limit_is_json_with_the_options_to_set() -> None:
    change = MeasuredChange(call="map", what="double (a.py:1)", option="concurrency", value=asd.AUTO)
    told = json.loads(json.dumps(Limit(stage="map", cause="cpu", changes=(change,)).as_dict()))
    assert told["changes"] == [
        {"call": "map", "what": "double (a.py:1)", "option": "concurrency", "value": "AUTO"},
    ]
    with NUMBERS.open() as loader:
        list(loader)
    assert json.loads(loader.report().to_json())["limit"]["cause"] == "not enough data"


def waiting_source(**counted: Any) -> StageCounters:
    return StageCounters("read", rows=9, waits_for="network", extra={BYTES_WAIT: 9.0, SHARDS: 100.0}, **counted)


def test_data_sets_that_wait_for_a_store_lead_to_the_interleave_that_made_them() -> None:
    dataset = Dataset.from_tensor_slices(["a"]).interleave(Dataset.from_tfrecord, cycle_length=1)
    outer = StageCounters("interleave", rows=9, input_wait_s=9.0, waits_for="user", inputs=("0",))
    limit = limit_of(dataset, {"0": StageCounters("slices"), "1": outer, "1/0": waiting_source()})
    assert [(change.call, change.option, change.value) for change in limit.changes] == [
        ("interleave", "cycle_length", 8)
    ]


def test_stages_in_a_process_lead_to_the_call_in_the_chain() -> None:
    dataset = Dataset.from_tfrecord("data/*").batch(4).in_subprocess()
    here = StageCounters("in_subprocess", rows=9, rows_in=9, input_wait_s=9.0)
    limit = limit_of(dataset, {"2": here, "2/1": StageCounters("batch", inputs=("2/0",)), "2/0": waiting_source()})
    assert [(change.call, change.option) for change in limit.changes] == [("from_tfrecord", "cycle_length")]


def test_a_filter_that_drops_most_rows_is_named_where_work_was_lost() -> None:
    dataset = NUMBERS.map(double).filter(bool).batch(4)
    mapped = StageCounters("map", rows=900, rows_in=900, busy_s=9.9, cpu_s=9.5, waits_for="user", inputs=("0",))
    kept = StageCounters("filter", rows=9, rows_in=900, dropped=891, busy_s=0.1, waits_for="user", inputs=("1",))
    kept.fused_wait_s = 9.9
    limit = limit_of(dataset, {"0": StageCounters("range"), "1": mapped, "2": kept})
    assert "a later filter() drops 99% of its rows" in limit.advice


# -- counters


def test_counters_since_a_moment_are_those_of_the_time_after_it() -> None:
    before = StageCounters("map", rows=10, busy_s=1.0, extra={"probe_s": 2.0, SHARDS: 4.0})
    now = StageCounters("map", rows=25, busy_s=4.0, workers=3, what="f (a.py:1)", extra={"probe_s": 5.0, SHARDS: 4.0})
    passed = now.since(before)
    assert (passed.rows, passed.busy_s, passed.workers, passed.title) == (15, 3.0, 3, "map f (a.py:1)")
    assert passed.extra == {"probe_s": 3.0, SHARDS: 4.0}
    assert now.since(None) == now


def test_counters_of_processes_keep_their_inputs_below_the_place_of_the_process() -> None:
    stages = [("0", StageCounters("range", rows=5)), ("1", StageCounters("map", rows=5, inputs=("0",)))]
    joined = dict(joined_counters([stages, stages], "3/"))
    assert joined["3/1"].inputs == ("3/0",)
    assert joined["3/1"].rows == 10


def test_a_board_makes_the_counters_of_a_stage_once() -> None:
    board, made = Board(), []

    def make() -> StageCounters:
        made.append(StageCounters("map"))
        return made[-1]

    assert board.of("1", make) is board.of("1", make)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("places", "prefix", "root"),
    [(["0", "2", "10"], "", "10"), (["1", "1/0", "1/3"], "1/", "1/3"), (["1/0/2"], "1/", None), ([], "", None)],
)
def test_the_last_stage_of_a_plan_has_the_highest_number(places: list[str], prefix: str, root: str | None) -> None:
    assert root_of(dict.fromkeys(places), prefix) == root


def test_a_window_is_the_difference_of_two_marks_and_counts_workers_in_processes() -> None:
    def mark(at: float, cpu_s: float, pressure_s: float | None) -> CounterMark:
        far = StageCounters("map", cpu_s=2 * at, runs_in="processes")
        times: dict[str, Any] = {"at": at, "read_at": at, "process_cpu_s": cpu_s, "loop_cpu_s": at / 10}
        waits: dict[str, Any] = {"elements": int(at), "consumer_wait_s": at / 2, "memory_wait_s": 0.0}
        return CounterMark(**times, **waits, pressure_s=pressure_s, stages={"0": far}, storage={"requests": 3 * at})

    window = between(mark(10.0, 1.0, 5.0), mark(20.0, 6.0, 10.0), cpus=4)
    assert (window.seconds, window.elements, window.consumer_wait_s) == (10.0, 10, 5.0)
    assert window.cores_used == pytest.approx((5.0 + 20.0) / 10.0)
    assert window.storage == {"requests": 30.0}
    assert window.pressure == pytest.approx(0.5)
    assert window.is_contended
    assert between(mark(10.0, 1.0, None), mark(20.0, 6.0, None), cpus=4).pressure == 0.0


def test_a_wait_that_goes_on_counts() -> None:
    with Dataset.range(10**7).map(double).batch(10).open() as loader:
        next(iter(loader))
        time.sleep(0.3)
        window = loader._observation.window(is_busy=True)
        assert window is not None
        assert window.stages["0"].output_wait_s > 0.2
    assert window.stages["0"].output_wait_s < window.seconds + 0.1


def test_the_time_of_a_run_goes_to_the_last_step_of_the_loop() -> None:
    began = so_far = 0.0
    with Dataset.range(64).open() as loader:  # all of them come together
        for number in loader:
            began = began or time.perf_counter()
            time.sleep(0.004)
            if number == 40:
                so_far = time.perf_counter() - began
                assert loader.stats().wall_s >= so_far
    assert loader.stats().wall_s >= 1.5 * so_far
