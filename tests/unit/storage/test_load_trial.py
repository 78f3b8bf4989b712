"""Whether more or fewer requests in flight are better is decided by throughput, and only where pairs agree."""

from __future__ import annotations

import pytest

from aiostream_data.storage.load_trial import (
    MOST_PAIRS,
    MOST_VOID,
    LoadSample,
    LoadTrial,
    LoadVerdict,
    elasticity,
    verdict_of,
)


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(1.0, 1.0), (0.5, 0.0), (0.25, -1.0)],
    ids=["in proportion", "no more than before", "half as much"],
)
def test_the_elasticity_is_the_growth_of_throughput_by_the_growth_of_requests(speed: float, expected: float) -> None:
    assert elasticity(LoadSample(16.0, 1.0), LoadSample(32.0, speed)) == pytest.approx(expected)


def test_samples_with_about_as_many_requests_are_not_compared() -> None:
    assert elasticity(LoadSample(16.0, 1.0), LoadSample(17.0, 1.0)) is None


def test_samples_in_which_nothing_was_done_are_not_compared() -> None:
    assert elasticity(LoadSample(16.0, 0.0), LoadSample(32.0, 1.0)) is None


def test_two_clear_pairs_are_a_verdict() -> None:
    assert verdict_of([1.0]) is None
    assert verdict_of([1.0, 0.9]) is LoadVerdict.MORE
    assert verdict_of([-1.0, -0.8]) is LoadVerdict.FEWER


def test_pairs_that_differ_need_more_pairs() -> None:
    assert verdict_of([1.0, -0.6]) is None
    assert verdict_of([1.0, -0.6, 0.9, 0.8, 1.1, 1.0]) is LoadVerdict.MORE


def test_a_throughput_that_stays_the_same_needs_fewer_requests() -> None:
    pairs = [0.0]
    while (found := verdict_of(pairs)) is None:
        pairs.append(0.0)
    assert found is LoadVerdict.FEWER


def test_pairs_that_never_agree_change_nothing() -> None:
    pairs = [1.0, -1.0] * (MOST_PAIRS // 2)
    assert [verdict_of(pairs[:count]) for count in range(MOST_PAIRS)] == [None] * MOST_PAIRS
    assert verdict_of(pairs) is LoadVerdict.KEEP


def tried(trial: LoadTrial, speed: dict[float, float]) -> tuple[list[float], LoadVerdict]:
    """Return the limits in the order they were tried, and the verdict."""
    limits = []
    while True:
        limits.append(trial.limit)
        found = trial.add(LoadSample(trial.limit, speed[trial.limit]))
        if found is not None:
            return limits, found


def test_a_higher_limit_that_helps_is_kept() -> None:
    trial = LoadTrial(10, 14, usual=10.5, grows=True)
    limits, verdict = tried(trial, {10.0: 1.0, 14.0: 1.0})
    assert limits == [10.0, 14.0, 14.0, 10.0]
    assert trial.limit_after(verdict) == 14.0


def test_a_higher_limit_that_does_not_help_is_given_up() -> None:
    trial = LoadTrial(10, 14, usual=10.5, grows=True)
    _, verdict = tried(trial, {10.0: 1.0, 14.0: 0.5})
    assert (verdict, trial.limit_after(verdict)) == (LoadVerdict.FEWER, 10.5)


def test_a_lower_limit_that_gives_as_much_is_kept() -> None:
    trial = LoadTrial(10, 14, usual=14.0, grows=False)
    _, verdict = tried(trial, {10.0: 1.0, 14.0: 0.5})
    assert trial.limit_after(verdict) == 10.0


def test_a_trial_of_a_lower_limit_leaves_the_limit_as_it_was_in_its_other_arms() -> None:
    trial = LoadTrial(10, 14, usual=30.0, grows=False)
    assert trial.add(LoadSample(10.0, 1.0)) is None
    assert trial.limit == 30.0
    assert trial.limit_after(LoadVerdict.MORE) == 30.0


def test_drift_does_not_decide() -> None:
    trial, speed, found = LoadTrial(10, 14, usual=10.0, grows=True), 1.0, None
    while found is None:
        speed *= 0.9  # the store becomes slower all the time, with any number of requests
        found = trial.add(LoadSample(trial.limit, speed))
    assert found is LoadVerdict.MORE


@pytest.mark.parametrize(
    "sample", [LoadSample(3.0, 1.0), LoadSample(10.0, 1.0, is_steady=False)], ids=["unused", "unsteady"]
)
def test_arms_that_requests_did_not_fill_do_not_count(sample: LoadSample) -> None:
    trial = LoadTrial(10, 14, usual=10.0, grows=True)
    assert [trial.add(sample) for _ in range(MOST_VOID)] == [None] * MOST_VOID
    assert trial.add(sample) is LoadVerdict.KEEP
