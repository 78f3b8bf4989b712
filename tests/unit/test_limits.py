"""Naming the stage that limits a pipeline, from counters alone."""

from __future__ import annotations

import pytest

from aiostream_data.metrics.counters import ConsumerCounters, StageCounters
from aiostream_data.metrics.limits import find_limit

WALL_S = 10.0
WAITING = ConsumerCounters(elements=100, wait_s=9.0)


def read(fetch_s: float = 0.0) -> StageCounters:
    return StageCounters("read", rows=100, rows_in=100, busy_s=0.5, waits_for="network", extra={"fetch_s": fetch_s})


def limit_of(*stages: StageCounters, consumer: ConsumerCounters = WAITING, throttled: float = 0.0) -> tuple[str, str]:
    limit = find_limit(stages, consumer, WALL_S, 0.0, throttled)
    assert limit.advice in limit.sentence
    return limit.stage, limit.cause


def test_a_training_loop_that_never_waits_is_the_limit() -> None:
    assert limit_of(read(), consumer=ConsumerCounters(elements=100, wait_s=0.2)) == ("consumer", "consumer")


def test_a_run_that_delivered_nothing_has_no_limit_to_name() -> None:
    assert limit_of(read(), consumer=ConsumerCounters()) == ("pipeline", "unknown")


def test_a_stage_that_waits_for_input_is_not_the_limit_but_the_one_before_it() -> None:
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=0.1, input_wait_s=9.0)
    assert limit_of(read(fetch_s=9.0), batch) == ("read", "network")


def test_a_saturated_function_is_the_limit_although_its_stage_waits_for_input_meanwhile() -> None:
    mapped = StageCounters("map", rows=9, rows_in=9, busy_s=19.0, cpu_s=18.0, input_wait_s=6.0, workers=2)
    mapped.waits_for = "user"
    assert limit_of(read(), mapped) == ("map", "user")


def test_threads_that_together_get_one_core_are_held_back_by_the_gil() -> None:
    mapped = StageCounters("map", rows=9, rows_in=9, busy_s=19.0, cpu_s=10.0, workers=2, waits_for="user")
    assert limit_of(read(), mapped) == ("map", "gil")


def test_threads_that_wait_for_the_gil_between_calls_are_held_back_by_it_too() -> None:
    # Measured on an idle machine, with two threads and calls shorter than the interpreter's switch interval.
    for busy_s, cpu_s in ((10.7, 9.0), (11.3, 9.4), (12.4, 9.2)):
        mapped = StageCounters("map", rows=9, rows_in=9, busy_s=busy_s, cpu_s=cpu_s, workers=2, waits_for="user")
        assert limit_of(read(), mapped) == ("map", "gil")


def test_one_thread_that_is_always_at_work_beside_idle_ones_is_not_held_back_by_the_gil() -> None:
    mapped = StageCounters("map", rows=9, rows_in=9, busy_s=9.9, cpu_s=9.8, workers=4, waits_for="user")
    assert limit_of(read(), mapped) == ("map", "user")


def test_a_stage_that_computes_is_the_limit_also_while_other_programs_take_most_of_the_cores() -> None:
    # Measured on two cores beside four other programs.
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=8.3, cpu_s=1.5, input_wait_s=1.4)
    assert limit_of(read(), batch) == ("batch", "cpu")


def test_a_stage_that_only_waited_for_the_gil_is_not_the_limit_but_the_one_before_it() -> None:
    mapped = StageCounters("map", rows=9, rows_in=9, busy_s=19.0, cpu_s=10.0, workers=2, waits_for="user")
    batch = StageCounters("batch", rows=9, rows_in=9, busy_s=6.0, cpu_s=0.2, input_wait_s=4.0)
    assert limit_of(mapped, batch) == ("map", "gil")


def test_a_stage_that_waited_for_a_thread_is_not_the_limit_but_the_one_before_it() -> None:
    batch = StageCounters("batch", rows=10, rows_in=100, busy_s=1.0, cpu_s=1.0, input_wait_s=1.0)
    assert limit_of(read(fetch_s=9.0), batch) == ("read", "network")


@pytest.mark.parametrize("name", ["repeat", "prefetch"])
def test_a_stage_that_only_passes_on_is_never_the_limit(name: str) -> None:
    assert limit_of(read(), StageCounters(name, rows=100)) == ("read", "cpu")


def test_a_store_that_refuses_a_tenth_of_the_requests_throttles() -> None:
    assert limit_of(read(), throttled=0.2) == ("read", "throttle")
