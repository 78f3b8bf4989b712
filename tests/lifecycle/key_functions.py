"""Functions of the small data sets that group rows by key, or change columns."""

from __future__ import annotations

from typing import Any

from aiostream_data import Dataset


def is_odd(row: dict[str, Any]) -> bool:
    return int(row["m"]) % 2 == 1


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": len(rows), "n": [row["n"] for row in rows]}


def last_digit(row: dict[str, Any]) -> int:
    return int(row["n"]) * 7 % 4


def in_pairs(key: int, window: Dataset[Any]) -> Dataset[Any]:
    return window.shuffle(2).batch(2)


def whole_window(key: int, window: Dataset[Any]) -> Dataset[Any]:
    return window


def whole_branch(rows: Dataset[Any]) -> Dataset[Any]:
    return rows


def in_batches(rows: Dataset[Any]) -> Dataset[Any]:
    return rows.batch(2)


def in_reverse(rows: Dataset[Any]) -> Dataset[Any]:
    return rows.shuffle(4, seed=1)


def one_more_than(key: int) -> int:
    return key + 1


def nothing(key: int) -> list[int]:
    return []


def with_number(numbers: list[int], row: dict[str, Any]) -> list[int]:
    return [*numbers, int(row["n"])]
