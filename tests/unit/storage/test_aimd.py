"""How many requests a store bears: found by asking for more, cut by half when it says no."""

from __future__ import annotations

import pytest

from aiostream_data.storage.aimd import FIRST, MOST, Aimd


def answered(aimd: Aimd, times: int, *, now: float = 0.0, first_byte_s: float = 0.02, share: float = 1.0) -> None:
    for _ in range(times):
        aimd.answered(now, first_byte_s, int(share * aimd.limit))


def test_the_limit_doubles_in_every_round_until_the_first_refusal_and_grows_by_one_after() -> None:
    aimd = Aimd()
    answered(aimd, int(FIRST))
    assert aimd.limit == 2 * FIRST
    aimd.refused(10.0, None)
    assert aimd.limit == FIRST
    answered(aimd, int(FIRST), now=11.0)
    assert aimd.limit == pytest.approx(FIRST + 1, abs=0.1)


def test_a_limit_that_many_refusals_reduced_soon_returns_to_half_and_then_grows_by_one() -> None:
    aimd = Aimd()
    answered(aimd, 3 * int(FIRST))
    for late in range(20):
        aimd.refused(10.0 + late, None)
    assert aimd.limit == 1.0
    rounds = 0
    while aimd.limit < 0.9 * 2 * FIRST:
        answered(aimd, int(aimd.limit), now=40.0 + rounds)
        rounds += 1
    assert rounds <= 20
    half = aimd.limit
    for late in range(10):
        answered(aimd, int(aimd.limit), now=80.0 + late)
    assert aimd.limit == pytest.approx(half + 10, abs=2)


def test_a_store_that_keeps_refusing_at_a_lower_limit_lowers_the_limit_of_fast_growth() -> None:
    aimd = Aimd(limit=1000.0)
    for second in range(0, 200, 10):
        aimd.refused(float(second), None)
        aimd.limit = 20.0
        answered(aimd, 200, now=float(second), share=0.5)
    aimd.refused(200.0, None)
    answered(aimd, int(aimd.limit), now=201.0)
    assert aimd.limit == pytest.approx(11, abs=0.2)  # by one per round, from half of the 20 that the store bears


def test_refusals_of_one_round_cut_once() -> None:
    aimd = Aimd(limit=64.0)
    answered(aimd, 1, share=0.0)
    for late in range(10):
        aimd.refused(10.0 + late * 0.001, None)
    assert aimd.limit == 32.0
    assert aimd.throttled == 10
    aimd.refused(10.5, None)
    assert aimd.limit == 16.0


def test_the_limit_stays_between_one_and_the_most() -> None:
    aimd = Aimd()
    for second in range(20):
        aimd.refused(float(second), None)
    assert aimd.limit == 1.0
    aimd = Aimd()
    answered(aimd, 5_000)
    assert aimd.limit == MOST


def test_what_is_not_used_up_does_not_grow() -> None:
    aimd = Aimd()
    answered(aimd, 100, share=0.5)
    assert aimd.limit == FIRST


def test_what_a_store_asks_for_is_kept() -> None:
    aimd = Aimd()
    aimd.refused(10.0, 3.0)
    aimd.refused(10.1, 1.0)
    assert aimd.quiet_until == 13.0


def test_a_limit_between_two_numbers_grows_as_well() -> None:
    aimd = Aimd(limit=1.0)
    aimd.refused(0.0, None)
    answered(aimd, 200, now=1.0)
    assert aimd.limit > 15
