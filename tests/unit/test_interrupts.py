"""Ctrl-C that is held back comes behind the block; inside functions, and the second time, it comes at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.device.host import HostBackend
from aiostream_data.interrupts import interrupts_after


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_behind_the_block() -> None:
    done = []

    def run() -> None:
        with interrupts_after(lambda: done.append("asked to stop")):
            press_ctrl_c()
            done.append("the rest")
        done.append("never")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["asked to stop", "the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("at_once", ["a second one", "in a function"])
def test_it_is_raised_at_once(at_once: str) -> None:
    done = []

    def run() -> None:
        with interrupts_after(is_in_function=lambda: at_once == "in a function"):
            press_ctrl_c()
            done.append("after the first")
            press_ctrl_c()
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == (["after the first"] if at_once == "a second one" else [])


def test_a_block_that_a_function_runs_is_not_cut() -> None:
    done = []

    def run() -> None:
        with interrupts_after(is_in_function=lambda: True):
            with interrupts_after():
                press_ctrl_c()
                done.append("the rest of the inner block")
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["the rest of the inner block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_one_nothing_is_raised() -> None:
    with interrupts_after():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_handler_of_somebody_else_is_left_alone(when: str) -> None:
    heard: list[int] = []

    def own(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.getsignal(signal.SIGINT)
    try:
        if when == "before":
            signal.signal(signal.SIGINT, own)
        with interrupts_after():
            if when == "inside":  # as a debugger does that somebody enters in a function
                signal.signal(signal.SIGINT, own)
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_threads_that_hear_no_signals_are_left_alone() -> None:
    found: list[bool] = []

    def run() -> None:
        with interrupts_after():
            found.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True]


async def interrupted_on_the_loop(value: int) -> int:
    if value == 3:
        press_ctrl_c()
        await asyncio.sleep(60)
    return value


def interrupted(value: int) -> int:
    if value == 3:
        press_ctrl_c()
        raise AssertionError("it goes on behind Ctrl-C")
    return value


@pytest.mark.parametrize("function", [interrupted, interrupted_on_the_loop])
def test_a_stepped_run_ends_with_it_and_leaves_nothing(function: Any) -> None:
    given: list[int] = []

    def train() -> None:
        for number in Dataset.range(10).map(function).debug():
            given.append(number)

    with leaves_nothing():
        with pytest.raises(KeyboardInterrupt):
            train()
        assert given == [0, 1, 2]


@pytest.mark.parametrize(("copying", "stepped"), [("d2d", False), ("d2d", True), ("h2d", True)])
def test_a_copy_of_a_device_is_not_cut(monkeypatch: pytest.MonkeyPatch, copying: str, stepped: bool) -> None:
    copy = getattr(HostBackend, copying)
    given: list[Any] = []

    def interrupted_copy(*args: Any) -> None:
        if len(given) == 2:
            press_ctrl_c()
        copy(*args)

    def train() -> None:
        batches = Dataset.range(400).batch(2).to_device("cpu")
        with batches.debug() if stepped else batches.open() as loader:
            for batch in loader:
                given.append(batch)

    monkeypatch.setattr(HostBackend, copying, interrupted_copy)
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        train()
    assert len(given) >= 2
