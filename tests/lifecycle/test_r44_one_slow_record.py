"""R44: one record that takes far longer than the others holds up nobody but those that must come after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data._engine.calls.pacing import LONG_HOP_S

PATIENCE_S = 20.0
"""After so long a record that waits for others gives up, and the test fails with its error."""

SLOW = 300
"""The record that is slow."""


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait, as a slow function does; other processes are seen by the files they leave."""
    end = monotonic() + PATIENCE_S
    while not holds():
        if monotonic() > end:
            raise TimeoutError(f"nobody {what} while the slow record was being worked on")
        sleep(0.002)


def held_up(number: int, slow: int, released: Path) -> int:
    """Sleep a little; for the slow record, until it is released."""
    if number == slow:
        wait_until(released.exists, "received enough other records")
    sleep(0.0002)
    return number


SLOW_AMONG_CHEAP = 150_000
"""The slow record among cheap ones: so late that they run one hop after another."""


def held_up_and_cheap(number: int, slow: int, released: Path) -> int:
    if number == slow:
        wait_until(released.exists, "received enough other records")
    return number + 0


async def held_up_later(number: int, slow: int, released: Path) -> int:
    end = monotonic() + PATIENCE_S
    while number == slow and not released.exists():
        if monotonic() > end:
            raise TimeoutError("nobody received enough other records while the slow record was awaited")
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.0002)
    return number


A_HOP = round(LONG_HOP_S / 0.0002) + 20
"""Records that may wait behind the slow one: at most those of its hop, which are asleep for 0.2 ms each at least."""

UNORDERED: dict[str, tuple[Callable[..., Any], int, int, dict[str, Any]]] = {
    # function, records, how many of them may be in the slow one's hop and behind it, options
    "threads": (held_up, 4_000, A_HOP, {"executor": "thread"}),
    "four threads": (held_up, 4_000, A_HOP, {"executor": "thread", "concurrency": 4}),
    "one thread for cheap rows": (held_up_and_cheap, 600_000, 140_000, {"executor": "thread"}),
    "processes": (held_up, 4_000, A_HOP, {"executor": "process", "concurrency": 2}),
    "coroutines": (held_up_later, 4_000, 1, {"concurrency": 32}),
}


@pytest.mark.parametrize(("function", "rows", "behind", "options"), UNORDERED.values(), ids=UNORDERED)
def test_r44_unordered_all_other_records_are_given_while_one_is_slow(
    tmp_path: Path, function: Callable[..., Any], rows: int, behind: int, options: dict[str, Any]
) -> None:
    released = tmp_path / "released"
    slow = SLOW_AMONG_CHEAP if function is held_up_and_cheap else SLOW
    dataset = Dataset.range(rows).map(partial(function, slow=slow, released=released), ordered=False, **options)
    given = []
    with leaves_nothing(), dataset.open() as loader:
        for number in loader:
            given.append(int(number))
            if len(given) == rows - behind:
                assert slow not in given
                released.touch()
    assert sorted(given) == list(range(rows))


ORDERED: dict[str, tuple[bool, dict[str, Any]]] = {
    "threads": (False, {"executor": "thread"}),
    "four threads": (False, {"executor": "thread", "concurrency": 4}),
    "processes": (False, {"executor": "process", "concurrency": 2}),
    "coroutines": (True, {"concurrency": 32}),
}
LATER = 3
"""Records behind the slow one that must begin before it is over."""


def begins(number: int, folder: Path) -> None:
    if number >= SLOW:
        (folder / str(number)).touch()


def begun(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) - 1


def marked(number: int, folder: Path) -> int:
    begins(number, folder)
    if number == SLOW:
        wait_until(lambda: begun(folder) >= LATER, f"began {LATER} others")
        sleep(0.3)  # long enough to fill any window that has an end
    sleep(0.001)
    return number


async def marked_later(number: int, folder: Path) -> int:
    begins(number, folder)
    end = monotonic() + PATIENCE_S
    while number == SLOW and begun(folder) < LATER:
        if monotonic() > end:
            raise TimeoutError(f"nobody began {LATER} others while record {SLOW} was awaited")
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.3 if number == SLOW else 0.001)
    return number


@pytest.mark.parametrize(("is_coroutine", "options"), ORDERED.values(), ids=ORDERED)
def test_r44_ordered_others_are_worked_on_until_the_window_is_full(
    tmp_path: Path, is_coroutine: bool, options: dict[str, Any]
) -> None:
    rows, begun_by_then = 4_000, 0
    function = partial(marked_later if is_coroutine else marked, folder=tmp_path)
    with leaves_nothing(), Dataset.range(rows).map(function, **options).open() as loader:
        for expected, number in enumerate(loader):
            assert number == expected
            if number == SLOW:
                begun_by_then = begun(tmp_path)
    assert LATER <= begun_by_then < rows // 2


def test_workers_that_are_no_longer_needed_while_one_is_slow_are_given_up_once(tmp_path: Path) -> None:
    """Rows become cheap while a slow one is still running: what ran beside it must not be taken back twice."""
    released = tmp_path / "released"

    def then_cheap(number: int) -> int:
        if number == SLOW:
            wait_until(released.exists, "received enough other records")
        elif number < 4_000:  # for half a second, in which the slow one comes to count as late
            sleep(0.001)
        return number

    rows = 400_000
    given = 0
    dataset = Dataset.range(rows).map(then_cheap, executor="thread", ordered=False).batch(1000)
    with leaves_nothing(), dataset.open() as loader:
        for batch in loader:
            given += len(batch)
            if given == rows // 2:
                released.touch()
    assert given == rows


# -- what it costs


PAIRS = 16
LOSS = 0.05


def waits(number: int, slow: int) -> int:
    sleep(0.3 if number == slow else 0.001)
    return number


async def waits_later(number: int, slow: int) -> int:
    await asyncio.sleep(0.3 if number == slow else 0.01)
    return number


COSTS: dict[str, tuple[Callable[..., Any], int, dict[str, Any]]] = {
    "threads": (waits, 6_000, {"executor": "thread"}),
    "coroutines": (waits_later, 4_000, {"concurrency": 64}),
}


def seconds(function: Callable[..., Any], rows: int, slow: int, options: dict[str, Any]) -> float:
    with Dataset.range(rows).map(partial(function, slow=slow), ordered=False, **options).open() as loader:
        started = perf_counter()
        assert sum(1 for _ in loader) == rows
        return perf_counter() - started


@pytest.mark.parametrize(("function", "rows", "options"), COSTS.values(), ids=COSTS)
def test_r44_unordered_one_slow_record_costs_less_than_five_percent(
    function: Callable[..., Any], rows: int, options: dict[str, Any]
) -> None:
    """The best of up to sixteen pairs of runs counts: other programs only ever make a run slower."""
    clean, slow = float("inf"), float("inf")
    for _ in range(PAIRS):
        clean = min(clean, seconds(function, rows, -1, options))
        slow = min(slow, seconds(function, rows, rows // 3, options))
        if slow < clean * (1 + LOSS):
            return
    pytest.fail(f"{rows} records took {clean:.2f} s, and {slow:.2f} s with a slow one among them")
