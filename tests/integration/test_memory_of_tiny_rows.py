"""Files with tiny rows take no more memory than the limit, although each row needs an index and an id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd

LIMIT = 32 << 20

WIDE = {f"c{number}": np.int64 for number in range(100)}


def files_of(folder: Path, count: int, content: bytes) -> list[str]:
    paths = [folder / f"{number:03}" for number in range(count)]
    for path in paths:
        path.write_bytes(content)
    return list(map(str, paths))


def empty_lines(path: str | Sequence[str]) -> asd.Dataset[Any]:
    return asd.Dataset.from_text(path, cycle_length=1 if isinstance(path, str) else 16)


def numbers(path: str | Sequence[str]) -> asd.Dataset[Any]:
    return asd.Dataset.from_csv(path, schema={"a": np.int64}, header=False)


def wide_rows(path: str | Sequence[str]) -> asd.Dataset[Any]:
    return asd.Dataset.from_csv(path, schema=WIDE, header=False)


def byte_records(path: str | Sequence[str]) -> asd.Dataset[Any]:
    return asd.Dataset.from_fixed_length(path, 1)


def objects(path: str | Sequence[str]) -> asd.Dataset[Any]:
    return asd.Dataset.from_jsonl(path, schema={"a": np.int64})


CASES = [
    (empty_lines, b"\n" * 100_000),
    (numbers, b"1\n" * 50_000),
    (wide_rows, b",".join([b"1"] * 100) + b"\n"),
    (byte_records, b"1" * 100_000),
    (objects, b'{"a":1}\n' * 20_000),
]


@pytest.mark.parametrize(("read", "content"), CASES, ids=[read.__name__ for read, _ in CASES])
@pytest.mark.parametrize("mixed", ["one source", "mixture", "interleave"])
def test_tiny_rows_of_small_files_stay_within_the_limit(
    read: Callable[[str | Sequence[str]], asd.Dataset[Any]], content: bytes, mixed: str, tmp_path: Path
) -> None:
    if read is wide_rows:
        content *= 300
    paths = files_of(tmp_path, 64, content)
    if mixed == "one source":
        dataset = read(paths)
    elif mixed == "mixture":
        dataset = asd.Dataset.sample_from([read(path) for path in paths], seed=1)
    else:
        dataset = asd.Dataset.from_iterable(paths).interleave(read, cycle_length=64)
    rows = 0
    with dataset.batch(1_000).take(150).open(memory_limit=LIMIT) as loader:
        for _ in loader:
            rows += 1
        peak = loader.stats().memory.peak
    assert rows == min(150, -(-64 * 300 // 1_000) if read is wide_rows else 150)
    assert peak <= LIMIT
