"""Naming the stage that limits a pipeline, and why, from counters alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiostream_data.metrics.bottleneck import find_limit
from aiostream_data.metrics.counters import (
    BYTES_WAIT,
    CORE_HAD,
    CORE_WAITED,
    FETCH,
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
    TRANSFER,
    StageCounters,
)
from aiostream_data.metrics.window import Hosted, MeasuredWindow

SECONDS = 10.0


def observed(*stages: StageCounters, **changes: Any) -> MeasuredWindow:
    """Return ten seconds in which the consumer waited nine, on two cores; each stage reads the one before it."""
    chained = {str(number): stage for number, stage in enumerate(stages)}
    for number, stage in enumerate(stages):
        stage.inputs = stage.inputs or ((str(number - 1),) if number else ())
    window = MeasuredWindow(
        seconds=SECONDS,
        elements=100,
        consumer_wait_s=9.0,
        memory_wait_s=0.0,
        stages=chained,
        storage={},
        cpus=2,
        cores_used=0.5,
        loop_cpu_s=0.1,
    )
    return replace(window, **changes)


def remote(waited_s: float = 9.0, **counted: Any) -> StageCounters:
    extra = {BYTES_WAIT: waited_s}
    return StageCounters("read", rows=100, busy_s=0.5, cpu_s=0.4, waits_for="network", extra=extra, **counted)


def local(cpu_s: float = 0.4, work: str = "cut records", extra: dict[str, float] | None = None) -> StageCounters:
    return StageCounters(
        "read", rows=100, nbytes=10**8, busy_s=cpu_s, cpu_s=cpu_s, waits_for="disk", work=work, extra=extra or {}
    )


def mapped(busy_s: float, cpu_s: float, workers: int = 1, runs_in: str = "threads", **counted: Any) -> StageCounters:
    named: dict[str, Any] = {"rows": 9, "rows_in": 9, "waits_for": "user", "what": "decode (train.py:12)"}
    return StageCounters("map", busy_s=busy_s, cpu_s=cpu_s, workers=workers, runs_in=runs_in, **(named | counted))


def limit_of(window: MeasuredWindow | None) -> tuple[str, str, str]:
    verdict = find_limit(window)
    return verdict.stage, verdict.cause, verdict.detail


# -- when there is nothing to say


def test_below_a_second_there_is_not_enough_data() -> None:
    verdict = find_limit(replace(observed(remote()), seconds=0.8))
    assert (verdict.stage, verdict.cause) == ("pipeline", "not enough data")
    assert verdict.evidence == "0.8 s were observed, and 1 s are needed"


def test_before_the_first_element_there_is_not_enough_data() -> None:
    assert limit_of(None) == ("pipeline", "not enough data", "")


def test_a_training_loop_that_never_waits_is_the_limit() -> None:
    assert limit_of(observed(remote(), consumer_wait_s=0.2)) == ("consumer", "consumer", "")


# -- which stage


def test_a_stage_that_waits_for_input_is_not_the_limit_but_the_one_before_it() -> None:
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=0.1, input_wait_s=9.0)
    assert limit_of(observed(remote(), batch)) == ("read", "network", "")


def test_a_saturated_function_is_the_limit_although_its_stage_waits_for_input_meanwhile() -> None:
    stage = mapped(19.0, 18.0, workers=2, input_wait_s=6.0)
    assert limit_of(observed(remote(), stage)) == ("map", "cpu", "decode")


def test_a_function_that_uses_all_cores_is_the_limit_although_most_of_its_workers_wait() -> None:
    stage = mapped(40.0, 19.0, workers=16, input_wait_s=9.0)
    assert limit_of(observed(local(), stage)) == ("map", "cpu", "decode")


def test_a_stage_that_computes_is_the_limit_also_while_other_programs_take_most_of_the_cores() -> None:
    # Measured on two cores beside four other programs.
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=8.3, cpu_s=1.5, input_wait_s=1.4)
    assert limit_of(observed(remote(0.5), batch)) == ("batch", "cpu", "batch")


def test_a_stage_that_only_waited_for_the_gil_is_not_the_limit_but_the_one_before_it() -> None:
    held = mapped(19.0, 10.0, workers=2, extra={GIL_LOOKS: 60, GIL_TAKEN: 58})
    batch = StageCounters("batch", rows=9, rows_in=9, busy_s=6.0, cpu_s=0.2, input_wait_s=4.0)
    assert limit_of(observed(held, batch)) == ("map", "gil", "decode")


def test_a_stage_that_waited_for_a_thread_is_not_the_limit_but_the_one_before_it() -> None:
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=1.0, cpu_s=1.0, input_wait_s=1.0)
    assert limit_of(observed(remote(), batch)) == ("read", "network", "")


@pytest.mark.parametrize("name", ["repeat", "prefetch"])
def test_a_stage_that_only_passes_on_is_never_the_limit(name: str) -> None:
    assert limit_of(observed(remote(), StageCounters(name, rows=100))) == ("read", "network", "")


@pytest.mark.parametrize("slow", [0, 1])
def test_of_several_inputs_the_one_that_never_waits_for_room_is_the_slow_one(slow: int) -> None:
    inputs = [replace(mapped(9.0, 0.1), output_wait_s=9.5), replace(mapped(9.0, 0.1), output_wait_s=9.5)]
    inputs[slow] = replace(inputs[slow], name="slow", output_wait_s=0.1)
    both = StageCounters("zip", rows=9, rows_in=18, busy_s=0.1, cpu_s=0.1, input_wait_s=9.0, inputs=("0", "1"))
    window = observed(*inputs, both)
    window.stages["1"].inputs = ()
    assert limit_of(window) == ("slow", "waiting", "decode")


def test_the_data_sets_that_a_function_makes_are_inputs_as_well() -> None:
    outer = StageCounters("from_tensor_slices", rows=100, output_wait_s=9.0)
    interleave = StageCounters("interleave", rows=100, rows_in=9, input_wait_s=9.0, waits_for="user")
    window = observed(outer, interleave)
    inner = replace(remote(), name="interleave/read")
    assert limit_of(replace(window, stages={**window.stages, "1/0": inner})) == ("interleave/read", "network", "")


def test_stages_in_processes_are_held_against_the_time_of_the_processes() -> None:
    there = {"1/0": mapped(1.9, 1.8)}
    here = StageCounters("in_subprocess", rows=9, rows_in=9, input_wait_s=9.5)
    hosted = {"1/": Hosted(seconds=2.0, cpu_s=1.9, loop_cpu_s=0.1, processes=1)}
    window = observed(StageCounters("range"), here, hosted=hosted)
    assert limit_of(replace(window, stages={**window.stages, **there})) == ("map", "cpu", "decode")


# -- readers that get no core


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_a_reader_that_waited_for_nothing_is_not_the_limit_but_the_function_that_had_the_cores(workers: int) -> None:
    # As measured of JPEGs: the stage waits for input, since the reader gets no core.
    decoding = mapped(25.0, 9.0, workers=workers, input_wait_s=9.0)
    decoding.work = "decode"
    found = limit_of(observed(local(extra={FETCH: 40.0, FETCHES: 4_000}), decoding, cores_used=1.2))
    assert found == ("map", "cpu", "decode")


def test_a_network_that_was_waited_for_is_no_matter_while_all_cores_are_at_work() -> None:
    decoding = mapped(25.0, 15.0, workers=4, input_wait_s=9.0)
    assert limit_of(observed(remote(), decoding, cores_used=1.9)) == ("map", "cpu", "decode")


# -- coroutines


def held(seconds: float, **counted: Any) -> StageCounters:
    """Return a coroutine stage of which a tenth of the calls was timed."""
    extra = {LOOP_CALLS: 1_000.0, LOOP_LOOKS: 100.0, LOOP_HELD: seconds / 10}
    return mapped(600.0, 0.0, workers=64, runs_in="loop", extra=extra, **counted)


def test_a_coroutine_that_keeps_the_loop_between_its_awaits_blocks_it_however_idle_the_cores_are() -> None:
    verdict = find_limit(observed(held(9.7)))
    assert (verdict.stage, verdict.cause, verdict.detail) == ("map", "loop", "decode")
    assert verdict.evidence == "it blocked the event loop 97% of the time, between its awaits"


def test_a_coroutine_that_awaits_most_of_the_time_waits() -> None:
    assert limit_of(observed(held(0.5))) == ("map", "waiting", "decode")


def test_a_coroutine_that_blocks_the_loop_is_the_limit_whatever_else_waits_for_it() -> None:
    slow = mapped(9.0, 0.1, what="save (train.py:20)")
    assert limit_of(observed(held(9.7), slow)) == ("map", "loop", "decode")


# -- what functions do


def test_a_function_that_is_hardly_on_a_core_waits() -> None:
    assert limit_of(observed(mapped(70.0, 0.6, workers=8))) == ("map", "waiting", "decode")


def test_a_function_whose_threads_lose_their_cores_computes() -> None:
    # Measured beside ten other programs: 8 threads that hash, and 8 that sleep.
    hashing = mapped(60.0, 3.0, workers=8, extra={PREEMPTIONS: 3_000})
    sleeping = mapped(70.0, 0.8, workers=8, extra={PREEMPTIONS: 6_000})
    assert limit_of(observed(hashing)) == ("map", "cpu", "decode")
    assert limit_of(observed(sleeping)) == ("map", "waiting", "decode")


@pytest.mark.parametrize(
    ("cpu_s", "waited", "cause"),
    [
        (5.0, 2.0, "waiting"),  # 128 threads that sleep, which use more cores with their switches than for their work
        (11.0, 3.0, "waiting"),
        (3.0, 60.0, "cpu"),  # 128 threads that hash beside other programs
    ],
)
def test_a_function_computes_that_wants_a_core_whether_or_not_it_gets_one(
    cpu_s: float, waited: float, cause: str
) -> None:
    looked = {CORE_HAD: 0.1, CORE_WAITED: 0.1 * waited, PREEMPTIONS: 20_000}
    function = mapped(1_000.0 if cause == "waiting" else 300.0, cpu_s, workers=128, extra=looked)
    assert limit_of(observed(function, pressure=0.9, cores_used=1.2))[1] == cause


@pytest.mark.parametrize(("taken", "cause"), [(57, "gil"), (18, "cpu")])
def test_functions_hold_the_gil_whose_threads_take_it_at_once(taken: int, cause: str) -> None:
    extra = {GIL_LOOKS: 60.0, GIL_TAKEN: float(taken)}
    assert limit_of(observed(mapped(19.0, 9.9, workers=2, extra=extra)))[1] == cause


def test_threads_that_want_a_core_all_the_time_do_not_wait_for_the_gil() -> None:
    extra = {GIL_LOOKS: 60.0, GIL_TAKEN: 57.0, CORE_HAD: 1.0}
    for waited, cause in ((90.0, "cpu"), (1.0, "gil")):
        function = mapped(100.0, 1.0, workers=64, extra=extra | {CORE_WAITED: waited})
        assert limit_of(observed(function, pressure=0.9))[1] == cause


def test_nobody_holds_the_gil_who_uses_more_than_one_core() -> None:
    extra = {GIL_LOOKS: 60.0, GIL_TAKEN: 60.0}
    assert limit_of(observed(mapped(19.0, 15.0, workers=2, extra=extra)))[1] == "cpu"


def test_processes_have_a_gil_each() -> None:
    extra = {GIL_LOOKS: 60.0, GIL_TAKEN: 60.0}
    assert limit_of(observed(mapped(19.0, 9.9, workers=2, runs_in="processes", extra=extra)))[1] == "cpu"


def test_rows_that_travel_longer_than_they_are_worked_on_are_what_takes_the_time() -> None:
    there = mapped(1.0, 0.9, workers=2, runs_in="processes", input_wait_s=8.0, extra={TRANSFER: 17.0})
    assert limit_of(observed(StageCounters("range"), there)) == ("map", "transfer", "")


def test_a_few_slow_rows_are_skew() -> None:
    assert limit_of(observed(mapped(9.5, 0.1, extra={SLOW_ROWS: 8.0})))[1] == "skew"


@pytest.mark.parametrize(("loop_cpu_s", "cause"), [(8.0, "loop"), (0.5, "waiting")])
def test_a_coroutine_function_waits_or_computes_on_the_event_loop(loop_cpu_s: float, cause: str) -> None:
    awaited = mapped(500.0, 0.0, workers=64, runs_in="loop")
    assert limit_of(observed(awaited, loop_cpu_s=loop_cpu_s)) == ("map", cause, "decode")


# -- what sources do


@pytest.mark.parametrize(("first_byte_s", "detail"), [(9.0, "latency"), (1.0, "bandwidth")])
def test_answers_that_are_late_are_latency_and_answers_that_are_long_are_bandwidth(
    first_byte_s: float, detail: str
) -> None:
    storage = {"first_byte_s": first_byte_s, "body_s": 10.0 - first_byte_s}
    assert limit_of(observed(remote(), storage=storage)) == ("read", "network", detail)


def test_a_store_that_refuses_a_tenth_of_the_requests_throttles() -> None:
    assert limit_of(observed(remote(), storage={"requests": 100, "retries": 20}))[1] == "throttle"


def test_readers_that_wait_for_room_are_held_up_by_the_memory_limit() -> None:
    assert limit_of(observed(remote(), memory_wait_s=8.0))[1] == "memory"


def test_a_disk_is_the_limit_only_where_reads_waited_for_it() -> None:
    reading = local(4.0, extra={FETCH: 50.0})
    assert limit_of(observed(reading, storage={"disk_wait_s": 9.0})) == ("read", "disk", "")
    assert limit_of(observed(reading, storage={"disk_wait_s": 0.1})) == ("read", "cpu", "cut records")


def test_many_small_files_in_the_page_cache_are_no_slow_disk() -> None:
    files = local(1.0, extra={FETCH: 20.0, FETCHES: 12_000, FETCHED: 1_200_000})
    assert limit_of(observed(files, loop_cpu_s=9.0)) == ("read", "files", "")


@pytest.mark.parametrize("work", ["parse", "decompress"])
def test_a_source_that_computes_says_what(work: str) -> None:
    assert limit_of(observed(local(9.0, work=work))) == ("read", "cpu", work)


def test_a_source_without_work_or_wait_leaves_the_answer_open() -> None:
    assert limit_of(observed(local(0.1)))[1] == "unclear"


def test_rows_that_wait_in_a_file_wait_for_the_disk() -> None:
    shuffle = StageCounters("shuffle", rows=9, rows_in=9, busy_s=9.0, cpu_s=2.0, extra={ON_DISK: 10**9})
    assert limit_of(observed(StageCounters("range"), shuffle)) == ("shuffle", "disk", "")


def test_a_device_that_is_waited_for_is_the_limit() -> None:
    copying = StageCounters("to_device", rows=9, rows_in=9, busy_s=9.0, cpu_s=0.5, waits_for="device")
    assert limit_of(observed(StageCounters("range"), copying)) == ("to_device", "device", "")
