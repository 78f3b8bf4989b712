"""Functions that make pipelines slow on purpose, each by one cause; worker processes import them by name."""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

HASHED = bytes(2 << 20)


def spin(number: int) -> int:
    """Hold the GIL for about a millisecond."""
    total = 0
    for value in range(15_000):
        total += value * value
    return int(number)


def digest(number: int) -> int:
    """Compute for some milliseconds without the GIL."""
    return hashlib.sha256(HASHED).digest()[0] + int(number)


def wait(number: int) -> int:
    time.sleep(0.005)
    return int(number)


def digest_and_wait(number: int) -> int:
    """Compute for a fifth of the time, and wait."""
    wait(number)
    return hashlib.sha256(HASHED[: 1 << 20]).digest()[0] + int(number)


def spin_and_wait(number: int) -> int:
    wait(number)
    return spin(number)


def add_one(number: int) -> int:
    return int(number) + 1


async def wait_async(number: int) -> int:
    await asyncio.sleep(0.02)
    return int(number)


async def block(number: int) -> int:
    """Keep the event loop waiting."""
    time.sleep(0.003)
    return int(number)


async def block_after_an_await(number: int) -> bool:
    await asyncio.sleep(0.001)
    time.sleep(0.003)
    return number % 2 == 0


async def spin_async(number: int) -> int:
    return spin(number)


async def blocking_rows_async() -> AsyncIterator[int]:
    number = 0
    while True:
        time.sleep(0.003)
        yield number
        number += 1


def decode(file: dict[str, Any]) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(file["data"])).convert("RGB").resize((64, 64)))


def slow_rows() -> Iterator[int]:
    number = 0
    while True:
        time.sleep(0.003)
        yield number
        number += 1


async def slow_rows_async() -> AsyncIterator[int]:
    number = 0
    while True:
        await asyncio.sleep(0.003)
        yield number
        number += 1


def is_one_of_hundred(number: int) -> bool:
    return int(number) % 100 == 0


def is_awaited_by_many(number: int) -> int:
    """Take far longer for one row of fifty."""
    time.sleep(0.6 if int(number) % 50 == 20 else 0.002)
    return int(number)
