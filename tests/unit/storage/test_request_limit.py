"""The limit on concurrent requests finds what a store serves best, with the store and the clock simulated."""

from __future__ import annotations

import random

import pytest
from simulated_store import (
    Request,
    SimulatedStore,
    Speed,
    best_throughput,
    capacity,
    degrading,
    latency_only,
    taking,
    taking_exponential_times,
)

from aiostream_data.storage.aimd import FIRST, MOST, Aimd

STEADY = taking(0.02)
NOISY = taking_exponential_times(0.02)
CONSTANT = taking(0.02, spread=0.0)


def read(speed: Speed, request: Request, demand: int) -> SimulatedStore:
    return SimulatedStore(speed, request, lambda now: demand)


@pytest.mark.parametrize("request_", [CONSTANT, STEADY, NOISY], ids=["constant", "steady", "noisy"])
def test_a_store_with_nothing_but_latency_is_driven_to_the_most_that_readers_ask_for(request_: Request) -> None:
    store = read(latency_only, request_, 256)
    assert store.run(2.0) > 0.9 * 256
    assert store.run(10.0) > 0.97 * 256


def test_a_store_with_nothing_but_latency_is_driven_to_the_highest_limit() -> None:
    store = read(latency_only, STEADY, 2_000)
    store.run(1.0)
    assert store.aimd.limit == MOST


@pytest.mark.parametrize("request_", [CONSTANT, STEADY, NOISY], ids=["constant", "steady", "noisy"])
@pytest.mark.parametrize("first", [(4, 1, 2, 2), (1, 2, 1, 1, 2), (8, 1, 3, 11, 2)])
def test_few_requests_at_first_do_not_count_as_a_limit_of_the_store(first: tuple[int, ...], request_: Request) -> None:
    def demand(now: float) -> int:
        return first[int(now / 0.02)] if now < 0.02 * len(first) else 256

    for seed in range(20):
        store = SimulatedStore(latency_only, request_, demand, rng=random.Random(seed))
        store.run(0.02 * len(first) + 0.5)
        assert store.range_of_limits(0.0)[0] >= FIRST
        assert store.run(1.0) > 0.9 * 256


@pytest.mark.parametrize("request_", [CONSTANT, STEADY, NOISY], ids=["constant", "steady", "noisy"])
@pytest.mark.parametrize("demand", [32, 256])
@pytest.mark.parametrize(
    "speed",
    [capacity(16), capacity(48), degrading(40), degrading(100, 1.5)],
    ids=["capacity of 16", "capacity of 48", "degrading beyond 40", "degrading beyond 100"],
)
def test_the_throughput_is_near_that_of_the_best_fixed_limit(speed: Speed, demand: int, request_: Request) -> None:
    store = read(speed, request_, demand)
    store.run(2.0)
    assert store.run(10.0) > 0.9 * best_throughput(speed, request_, demand)


@pytest.mark.parametrize("request_", [CONSTANT, STEADY, NOISY], ids=["constant", "steady", "noisy"])
@pytest.mark.parametrize("demand", [32, 64, 256])
def test_a_store_that_degrades_beyond_a_few_requests_gets_few(demand: int, request_: Request) -> None:
    store = read(degrading(8), request_, demand)
    store.run(15.0)
    assert store.run(10.0) > 0.8 * best_throughput(degrading(8), request_, demand)
    assert store.aimd.limit <= 16
    assert store.aimd.throttled == 0


def test_the_limit_of_a_store_with_a_capacity_does_not_oscillate() -> None:
    store = read(capacity(16), STEADY, 256)
    store.run(5.0)
    least, most = store.range_of_limits(since=5.0)
    store.run(20.0)
    least, most = store.range_of_limits(since=5.0)
    assert least >= 7
    assert most <= 64


def test_a_store_that_recovers_gets_more_again() -> None:
    def speed(in_flight: int, now: float) -> float:
        return degrading(8 if 5.0 < now < 20.0 else 64)(in_flight, now)

    store = read(speed, STEADY, 128)
    assert store.run(5.0) > 0.5 * 64
    store.run(10.0)
    assert store.run(5.0) > 0.7 * 8
    assert store.aimd.limit <= 16
    store.run(10.0)
    assert store.run(10.0) > 0.8 * 64


def test_one_giant_among_dwarfs_does_not_count_as_a_slow_store() -> None:
    def giant_or_dwarf(rng: random.Random) -> tuple[float, int]:
        return (5.0, 1 << 30) if rng.random() < 0.001 else (rng.uniform(0.018, 0.022), 1 << 14)

    store = read(latency_only, giant_or_dwarf, 64)
    store.run(5.0)
    assert store.run(20.0) > 0.9 * 64
    slow = read(degrading(16), giant_or_dwarf, 64)
    slow.run(5.0)
    assert slow.run(20.0) > 0.9 * 16


@pytest.mark.parametrize("period_s", [0.5, 1.3, 5.0])
def test_a_change_of_object_sizes_does_not_count_as_a_slow_store(period_s: float) -> None:
    def small_or_large(rng: random.Random) -> tuple[float, int]:
        return (0.02, 1 << 14) if int(store.now / period_s) % 2 == 0 else (0.2, 8 << 20)

    store = read(latency_only, small_or_large, 64)
    store.run(5.0)
    assert store.run(20.0) > 0.85 * 64


def test_a_consumer_that_reads_in_bursts_does_not_count_as_a_slow_store() -> None:
    store = SimulatedStore(latency_only, STEADY, lambda now: 64 if int(now / 0.3) % 2 else 4)
    store.run(5.0)
    assert store.run(20.0) > 0.95 * (64 + 4) / 2


def test_a_slow_consumer_leaves_the_limit_alone_and_a_faster_one_gets_more() -> None:
    store = SimulatedStore(latency_only, STEADY, lambda now: 64 if now > 5.0 else 4)
    store.run(5.0)
    assert store.range_of_limits(since=0.0) == (FIRST, FIRST)
    store.run(2.0)
    assert store.run(5.0) > 0.9 * 64


def test_a_heavy_tail_of_latencies_does_not_count_as_a_slow_store() -> None:
    store = read(latency_only, lambda rng: (0.01 * rng.paretovariate(1.5), 1 << 18), 64)
    store.run(5.0)
    assert store.run(20.0) > 0.9 * 64


def test_a_processor_that_is_busy_now_and_then_costs_little() -> None:
    """Other threads take three quarters of the processor in three of ten slices of 0.3 s."""

    def busy_at(now: float) -> bool:
        return random.Random(int(now / 0.3)).random() < 0.3

    store = read(lambda in_flight, now: 0.25 if busy_at(now) else 1.0, STEADY, 64)
    free = read(store.speed, STEADY, 64)
    free.fixed = 64
    store.run(5.0)
    free.run(5.0)
    assert store.run(20.0) > 0.9 * free.run(20.0)


def test_a_processor_that_was_busy_leaves_no_trace() -> None:
    store = read(lambda in_flight, now: capacity(16)(in_flight, now) if 5.0 < now < 10.0 else 1.0, STEADY, 64)
    store.run(5.0)
    assert store.run(5.0) > 0.9 * 16
    store.run(10.0)
    assert store.run(5.0) > 0.9 * 64


def test_requests_that_take_a_few_milliseconds_are_not_judged_if_throughput_stays() -> None:
    store = read(capacity(16), taking(0.002), 48)
    store.run(5.0)
    assert store.run(5.0) > 0.97 * 16
    assert store.aimd.limit >= 48


def test_a_store_that_refuses_requests_is_not_asked_for_more_by_trials() -> None:
    store = read(latency_only, STEADY, 512)
    store.run(0.5)
    store.aimd.refused(store.now, None)
    after = store.aimd.limit
    store.run(2.0)
    assert store.aimd.limit <= after + 1.2 * 2.0 / 0.02


def test_a_refusal_ends_a_trial_and_halves_the_limit_before_it() -> None:
    store = read(capacity(16), STEADY, 256)
    store.run(1.0)
    while (trial := store.aimd._trial) is None:
        store.run(0.01)
    store.aimd.refused(store.now, None)
    assert store.aimd.limit == max(1.0, trial.usual / 2)
    limit = store.aimd.limit
    store.run(0.2)
    assert limit <= store.aimd.limit <= limit + 0.2 / 0.01  # one more in every round


def test_cancelled_requests_count_as_load_without_work() -> None:
    """Second requests for late ranges are cancelled: their places are free, but nothing was answered."""
    aimd, now = Aimd(), 0.0
    for number in range(2_000):
        aimd.passed(now, number % 2)
        now += 0.01
        if number % 2:
            aimd.answered(now, 0.02, 16)
    assert aimd.limit >= FIRST
