"""A stage that gives nothing for too long ends the loader with an error that names it, whatever kind of stage it is."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from gate import Gate
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import LoaderClosedError, PlanError, StageTimeoutError

TWENTY = asd.Dataset.range(20)
LIMIT_S = 0.3


def sleep_at_seven(number: int) -> int:
    if number == 7:
        time.sleep(60)
    return number


STUCK: dict[str, tuple[Callable[[Gate], asd.Dataset[Any]], str]] = {
    "map": (lambda gate: TWENTY.map(gate.check), "map"),
    "filter": (lambda gate: TWENTY.filter(gate.is_past).batch(2), "filter + batch"),
    "coroutine": (lambda gate: TWENTY.map(gate.check_later), "map"),
    "blocked loop": (lambda gate: TWENTY.map(gate.block_the_loop), "map"),
    "flat_map": (lambda gate: TWENTY.flat_map(lambda x: [gate.check(x)]), "flat_map"),
    "generator": (lambda gate: asd.Dataset.from_generator(gate.generate), "from_generator"),
    "async generator": (lambda gate: asd.Dataset.from_generator(gate.generate_async), "from_generator"),
    "process": (lambda gate: TWENTY.map(sleep_at_seven, executor="process", concurrency=1), "map"),
}


def time_out_of(dataset: asd.Dataset[Any], limit_s: float, stage: str, gate: Gate | None = None) -> StageTimeoutError:
    """Return the error that ends a loader because of the stage; open the gate then."""
    with leaves_nothing():
        loader = dataset.open(stage_timeout=limit_s)
        with pytest.raises(StageTimeoutError) as caught:
            list(loader)
        if gate is not None:
            gate.opened.set()
        with pytest.raises(LoaderClosedError, match="StageTimeoutError"):
            next(iter(loader))
        loader.close()
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert error.stage == stage
    assert error.waited_s >= limit_s
    return error


@pytest.mark.parametrize(("build", "stage"), STUCK.values(), ids=STUCK)
def test_a_stage_that_gives_nothing_for_too_long_ends_the_loader_with_its_name(
    build: Callable[[Gate], asd.Dataset[Any]], stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(for_coroutines=False)
    error = time_out_of(build(gate), LIMIT_S, stage, gate)
    assert f"stage_timeout={LIMIT_S:g}): {stage}, written at " in str(error)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("aiostream_data", logging.WARNING)
    assert f"\nstuck: {stage}, written at " in record.getMessage()


def test_the_error_names_function_and_record_and_pickles() -> None:
    gate = Gate(for_coroutines=False)
    with TWENTY.map(gate.check).open(stage_timeout=LIMIT_S) as loader:
        with pytest.raises(
            StageTimeoutError, match=r"Gate.check \(.*\), range record 7, for 0\.\d s on thread"
        ) as caught:
            list(loader)
        gate.opened.set()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.stage, again.waited_s) == (str(caught.value), "map", caught.value.waited_s)


def test_what_is_stuck_inside_a_process_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    dataset = TWENTY.map(sleep_at_seven).batch(2).in_subprocess()
    error = time_out_of(dataset, 3.0, "in_subprocess")  # in which the process has to start as well
    assert "stage_timeout=3): in_subprocess, written at " in str(error)
    assert re.search(r"process \d+: stuck: map \+ batch, .*sleep_at_seven \(.*record 7", str(error))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("aiostream_data", logging.WARNING)
    assert "\nstuck: in_subprocess, written at " in record.getMessage()


def test_a_consumer_that_takes_its_time_is_no_stage_that_does() -> None:
    paused = threading.Event()
    with TWENTY.map(abs).prefetch(2).open(stage_timeout=0.4) as loader:
        received = [(paused.wait(0.6 if number in (0, 12) else 0), number)[1] for number in loader]
    assert received == list(range(20))


def test_waits_that_were_cut_short_add_up() -> None:
    gate = Gate(for_coroutines=False)

    async def impatient() -> None:
        async with TWENTY.map(gate.check_later).open(stage_timeout=LIMIT_S) as loader:
            elements = aiter(loader)
            for _ in range(7):
                await anext(elements)
            deadline = time.perf_counter() + 10
            while time.perf_counter() < deadline:
                try:
                    await asyncio.wait_for(anext(elements), LIMIT_S / 10)
                except StageTimeoutError:
                    raise
                except TimeoutError:
                    continue

    with leaves_nothing(), pytest.raises(StageTimeoutError):
        asyncio.run(impatient())


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "10", True])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="stage_timeout must be a positive number of seconds or None"):
        TWENTY.open(stage_timeout=wrong)


def test_stepping_has_no_limits() -> None:
    paused = threading.Event()
    with TWENTY.map(lambda x: (paused.wait(0.02), x)[1]).debug(stage_timeout=0.001) as loader:
        assert list(loader) == list(range(20))
