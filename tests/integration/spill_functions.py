"""What data sets with spilling shuffles call; imported by name in other processes."""

from __future__ import annotations

from typing import Any

import numpy as np

ROW_NBYTES = 2_000


def record(number: int) -> bytes:
    """Return 1 to 4,000 bytes that tell which they are."""
    return (f"{number}:" * 1_000)[: 1 + int(number) * 7919 % (2 * ROW_NBYTES)].encode()


def long_record(number: int) -> bytes:
    return f"{number:08}".encode() * 2_500


class Opaque:
    """What nobody but its class knows how to write down."""

    nbytes = 1_000

    def __init__(self, number: int) -> None:
        self.number = number


def opaque(number: int) -> Opaque:
    return Opaque(int(number))


def row(number: int) -> dict[str, Any]:
    return {"n": int(number), "x": np.full((20, 25), float(number), np.float32)}


def ragged(number: int) -> dict[str, Any]:
    return {"tokens": np.arange(number, number + number * 13 % 900, dtype=np.int64), "name": f"é{number}"}


def odd(number: int) -> Any:
    """Return elements of classes that differ from row to row."""
    return [record(number), row(number), frozenset({int(number)}), [number, None, ragged(number)]][int(number) % 4]


def image(number: int) -> np.ndarray[Any, Any]:
    return np.full((10 + int(number) % 7, 30, 3), int(number) % 256, np.uint8)


def drawn(value: bytes, rng: np.random.Generator) -> tuple[bytes, float]:
    return value[:8], float(rng.random())
