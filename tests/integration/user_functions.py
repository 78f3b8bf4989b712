"""Functions that worker processes can import, for tests of ``executor="process"``."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np


class MoodyError(Exception):
    """An exception that cannot be rebuilt from its message alone."""

    def __init__(self, mood: str, *, level: int) -> None:
        super().__init__(f"{mood} at {level}")
        self.level = level


def double(number: int) -> int:
    return 2 * number


def add(left: int, right: int) -> int:
    return left + right


def draw(number: int, rng: np.random.Generator) -> tuple[int, int, float]:
    return number, int(rng.integers(1 << 40)), float(rng.normal())


def fail_on_seven(number: int) -> int:
    if number == 7:
        raise ValueError("seven is refused")
    return number


def fail_on_number_seven(element: dict[str, Any]) -> int:
    return fail_on_seven(int(element["number"]))


def fail_moodily(number: int) -> int:
    if number == 7:
        raise MoodyError("bad", level=3)
    return number


def interrupt_on_seven(number: int) -> int:
    if number == 7:
        raise KeyboardInterrupt("seven")
    return number


def exit_on_seven(number: int) -> int:
    if number == 7:
        raise SystemExit(3)
    return number


def unpicklable(number: int) -> Any:
    return threading.Lock()


def _too_deep(number: int) -> int:
    return fail_on_seven(number)


def fail_deeply(number: int) -> int:
    return _too_deep(number)
