"""Functions that fail on some records, in a module that worker processes can import."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def fails_on_every_hundredth(number: int) -> int:
    if number % 100 == 7:
        raise ValueError(f"number {number}")
    return 2 * number


async def awaits_and_fails(number: int) -> int:
    await asyncio.sleep(0)
    return fails_on_every_hundredth(number)


def few_or_failing(number: int) -> list[int]:
    """Return none to three numbers, or fail on every fifth element."""
    if number % 5 == 2:
        raise ValueError(f"number {number}")
    return list(range(10 * number, 10 * number + number % 4))


def fails_on_arrays(numbers: Any) -> Any:
    if (numbers % 100 == 7).any():
        raise ValueError("one of them")
    return 2 * numbers


def is_even_or_fails(number: int) -> bool:
    if number % 100 == 7:
        raise ValueError(f"number {number}")
    return number % 2 == 0


def adds_noise_or_fails(number: int, rng: np.random.Generator) -> tuple[int, float]:
    return fails_on_every_hundredth(number), float(rng.random())


def kills_its_process_on_13(number: int, folder: str) -> int:
    if number == 13:
        with open(Path(folder) / "deaths", "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def kills_its_process_once(number: int, folder: str) -> int:
    mark = Path(folder) / "died"
    if number == 13 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleeps_on_13(number: int) -> int:
    if number == 13:
        time.sleep(0.7)
    return number


def fails_at_length(number: int) -> int:
    """Fail on one with a message that is longer than a line of a log may be."""
    if number == 1:
        raise ValueError("begin " + "x" * (70 << 20) + " end")
    return number
