"""Functions of the plans that are resumed: calls of users, and data sets that these return."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data import Dataset


def count(rows: int) -> Iterator[int]:
    yield from range(rows)


async def count_async(rows: int) -> AsyncIterator[int]:
    for number in range(rows):
        await asyncio.sleep(0)
        yield number


def plus_one(number: int) -> int:
    return int(number) + 1


async def plus_one_later(number: int) -> int:
    await asyncio.sleep(0.001 * (int(number) % 3))
    return int(number) + 1


def plus_one_of_all(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return numbers + 1


def with_draw(number: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"n": int(number), "draw": rng.integers(1 << 40), "noise": rng.normal(size=2)}


def is_kept(number: int) -> bool:
    return int(number) % 3 != 1


def is_not_17(number: int) -> bool:
    return int(number) != 17


def is_not_row_17(row: dict[str, Any]) -> bool:
    return is_not_17(row["n"])


def dense(batch: Any) -> Any:
    return batch.toarray()


def padded_window(window: Dataset[Any]) -> Dataset[Any]:
    return window.padded_batch(3)


def class_of_row(row: dict[str, Any]) -> int:
    return int(row["n"]) % 3 // 2


def no_name_ends_in_2(name: bytes) -> bool:
    return not name.endswith(b"2")


def running_sum(total: int, number: int) -> tuple[int, int]:
    return total + int(number), total + int(number)


def running_set(seen: set[int], number: int) -> tuple[set[int], int]:
    return seen | {int(number) % 4}, len(seen)


def ten_fold(number: int) -> list[int]:
    return list(range(10 * number, 10 * number + number % 4))


def ten_fold_by_run(number: int) -> Dataset[Any]:
    return Dataset.range(10 * number, 10 * number + number % 4).shuffle(2).map(with_draw)


def ten_fold_in_batches(number: int) -> Dataset[Any]:
    return Dataset.range(10 * number, 10 * number + number % 4).batch(2)


def lines_of(path: str) -> Dataset[str]:
    return Dataset.from_text(path)


def checksum(record: bytes) -> int:
    return zlib.crc32(record)


def own_number(row: dict[str, Any]) -> int:
    return int(row["n"]) * 5 % 60


def own_remainder(number: int) -> int:
    return int(number) * 5 % 7


def some(number: int) -> np.ndarray[Any, Any]:
    return np.arange(int(number), int(number) + int(number) % 5)


def some_named(number: int) -> dict[str, Any]:
    return {"tokens": some(number), "weights": some(number) / 2}


def small_image(number: int) -> np.ndarray[Any, Any]:
    return np.arange(int(number), int(number) + 75, dtype=np.uint8).reshape(5, 5, 3)


def cast(images: Dataset[Any]) -> Dataset[Any]:
    cast = asd.ImageCast(flip="random", crop=(3, 3), crop_at="random")
    return images.to_device("cpu", transform=cast)
