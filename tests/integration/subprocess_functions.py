"""Functions that data sets in processes of their own call; imported there by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


class OddError(Exception):
    """Cannot be rebuilt from its message, as pickle tries to."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def squared(number: int) -> int:
    return int(number) ** 2


def with_draw(number: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"n": int(number), "draw": rng.integers(1 << 40), "noise": rng.normal(size=2)}


def is_even(number: int) -> bool:
    return int(number) % 2 == 0


def image(number: int) -> np.ndarray[Any, Any]:
    return np.full((64, 64, 3), int(number) % 251, np.uint8)


def process_id(number: int) -> int:
    return os.getpid()


def refused_13(number: int) -> int:
    if number == 13:
        raise ValueError("thirteen is refused")
    return int(number)


def oddly_refused_13(number: int) -> int:
    if number == 13:
        raise OddError(1, 3)
    return int(number)


def interrupted_at_13(number: int) -> int:
    if number == 13:
        raise KeyboardInterrupt
    return int(number)


def killed_at_13(number: int) -> int:
    if number == 13:
        os.kill(os.getpid(), 9)
    return int(number)


def leaves_at_13(number: int) -> int:
    if number == 13:
        os._exit(7)
    return int(number)


class OneMoreForEachReader:
    """An iterable that gives one element more each time it is read, in whatever process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            try:
                (self.folder / str(number)).touch(exist_ok=False)
            except FileExistsError:
                number += 1
                continue
            return iter(range(6 + 4 * number))
