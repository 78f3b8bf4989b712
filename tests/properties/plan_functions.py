"""What the functions of drawn plans do to an element, whatever it is made of. Importable, so that plans pickle."""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from PIL.Image import Image, fromarray

from aiostream_data import BytesArray, Dataset, TextArray

MODULUS = 1_000_003


def number(*element: Any) -> int:
    """Return a number that tells the elements of a plan apart: of a plain number itself, modulo a prime."""
    return number_of(element if len(element) > 1 else element[0])


def number_of(value: Any) -> int:
    """Return the number of a value of any kind; see :func:`number`."""
    if value is None:
        return 0
    if isinstance(value, (BytesArray, TextArray)):
        return _folded(value.to_list())
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, (bytes, str)):
        return zlib.crc32(value.encode() if isinstance(value, str) else value) % MODULUS
    if isinstance(value, (np.ndarray, Image)):
        return _folded(np.asarray(value).ravel().tolist())
    if isinstance(value, dict):
        return _folded(value.values())
    if isinstance(value, (tuple, list)):
        return _folded(value)
    if dataclasses.is_dataclass(value):
        return _folded([getattr(value, field.name) for field in dataclasses.fields(value)])
    return int(8 * value) % MODULUS if isinstance(value, (float, np.floating)) else int(value) % MODULUS


def _folded(values: Any) -> int:
    total = 1
    for value in values:
        total = (31 * total + number_of(value)) % MODULUS
    return total


def pair(*element: Any) -> tuple[int, int]:
    return number(*element), number(*element) % 7


def named(*element: Any) -> dict[str, Any]:
    return {"n": number(*element), "x": np.full(2, number(*element), np.float32)}


def pictured(*element: Any) -> dict[str, Any]:
    """Return the number of an element beside an image of it."""
    value = number(*element)
    return {"image": fromarray(np.full((2, 3), value % 256, np.uint8)), "n": value}


def text(*element: Any) -> str:
    return f"row {number(*element)}"


def encoded(*element: Any) -> bytes:
    return text(*element).encode()


def number_of_a_view(element: memoryview) -> int:
    """Return the number of an element that arrives as a view if it is bytes."""
    assert type(element).__name__ != "bytes"
    return number(element)


def int_or_float(*element: Any) -> float:
    value = number(*element)
    return value if value % 2 else value + 0.5


def plus_one(*element: Any) -> int:
    return number(*element) + 1


def drawn(*element: Any, rng: np.random.Generator) -> tuple[int, int]:
    return number(*element), int(rng.integers(1 << 30))


async def later(*element: Any) -> int:
    await asyncio.sleep(0.0002 * (number(*element) % 3))
    return number(*element) + 1


def doubled(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * rows


def with_double(rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {"n": rows, "twice": 2 * rows}


def is_kept(*element: Any) -> bool:
    return number(*element) % 3 != 0


def is_rare(*element: Any) -> bool:
    return number(*element) % 11 == 0


def never(*element: Any) -> bool:
    return False


def few(*element: Any) -> list[int]:
    first = number(*element)
    return list(range(10 * first, 10 * first + first % 5))


def few_of_a_range(*element: Any) -> Dataset[int]:
    first = number(*element)
    return Dataset.range(10 * first, 10 * first + first % 6)


def few_mapped(*element: Any) -> Dataset[int]:
    first = number(*element)
    rows = Dataset.range(10 * first, 10 * first + first % 7)
    return rows.filter(is_kept).map(plus_one).skip(first % 2)


def few_drawn(*element: Any) -> Dataset[tuple[int, int]]:
    first = number(*element)
    return Dataset.from_tensor_slices(np.arange(first % 5) + 10 * first).map(drawn)


def few_shuffled(*element: Any) -> Dataset[tuple[int, int]]:
    first = number(*element)
    return Dataset.range(10 * first, 10 * first + first % 5).shuffle(3).map(drawn)


def few_generated(*element: Any) -> Dataset[int]:
    first = number(*element)
    return Dataset.from_generator(counted, args=(10 * first, first % 4)).filter(is_kept)


def few_batched(*element: Any) -> Dataset[int]:
    first = number(*element)
    return Dataset.range(10 * first, 10 * first + first % 7).repeat(2).batch(3).unbatch().take(5)


def few_in_batches(*element: Any) -> Dataset[Any]:
    first = number(*element)
    rows = range(10 * first, 10 * first + first % 7)
    made = (Dataset.range(rows.start, rows.stop), Dataset.from_iterable(list(rows)), Dataset.range(first % 3).repeat(2))
    return made[first % 3].batch(1 + first % 4, drop_remainder=first % 5 == 1)


def left_of(path: str) -> Dataset[str]:
    return Dataset.from_text(path, on_error="skip")


def lines_of(path: str) -> Dataset[str]:
    return Dataset.from_text(path)


def chosen_lines_of(path: str) -> Dataset[str]:
    return Dataset.from_text(path).skip(1).map(str.upper).filter(lambda line: not line.endswith("3")).take(3)


def table_of(path: str) -> Dataset[Any]:
    return Dataset.from_parquet(path) if path.endswith("parquet") else Dataset.from_arrow(path)


def chosen_rows_of(path: str) -> Dataset[Any]:
    return table_of(path).skip(1).filter(lambda row: len(str(row)) % 3 > 0).take(4)


def drawn_lines_of(path: str) -> Dataset[str]:
    def numbered(line: str, rng: np.random.Generator) -> str:
        return f"{line} of {path[-5:]} {rng.integers(100)}"

    return Dataset.from_text(path).filter(lambda line: line[-1] != "1").map(numbered)


def counted(first: int, rows: int) -> Iterator[int]:
    yield from range(first, first + rows)


async def counted_async(first: int, rows: int) -> AsyncIterator[int]:
    for value in range(first, first + rows):
        await asyncio.sleep(0)
        yield value


def generated_rows(first: int, rows: int) -> Iterator[dict[str, Any]]:
    for value in range(first, first + rows):
        yield {"n": value, "x": np.arange(value, value + 3)}


def sequence(*element: Any) -> np.ndarray[Any, Any]:
    first = number(*element)
    return np.arange(first, first + first % 6)


def sequences(*element: Any) -> dict[str, np.ndarray[Any, Any]]:
    tokens = sequence(*element)
    return {"tokens": tokens, "weights": tokens.astype(np.float32) / 2}
