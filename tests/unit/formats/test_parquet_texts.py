"""Memory of the texts of Parquet columns, which the dictionary may repeat."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from table_bytes import directory_of

from aiostream_data.formats import parquet_texts
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.parquet_texts import REPEATED_NBYTES, TextColumn
from aiostream_data.testing.table_reading import parts_of

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def written(texts: list[Any], compression: str = "snappy", **options: Any) -> bytes:
    made = io.BytesIO()
    parquet.write_table(pa.table({"s": pa.array(texts, pa.binary())}), made, compression=compression, **options)
    return made.getvalue()


def needed_nbytes(data: bytes) -> int:
    directory = directory_of(ParquetFormat(), data)
    (group,) = directory.groups_from(0)
    return directory.decoded_nbytes(group, parts_of(data, group.ranges))


REPEATED = [b"x" * 1000, b"y" * 7, None] * 20_000
"""Texts of 20 MB, in a dictionary of 1 KB."""


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", CODECS)
def test_repeated_texts_count_with_each_repetition(compression: str, version: str) -> None:
    needed = needed_nbytes(written(REPEATED, compression, data_page_version=version))
    assert 20_000_000 < needed < 80_000_000


@pytest.mark.parametrize("compression", CODECS)
def test_the_longest_text_is_found_without_decoding_the_column(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    longest = TextColumn.longest_nbytes

    def noted(self: TextColumn, items: int) -> int | None:
        asked.append(items)
        return longest(self, items)

    monkeypatch.setattr(TextColumn, "longest_nbytes", noted)
    data = written(REPEATED, compression)
    needed = needed_nbytes(data)
    assert bool(asked) == (compression == "lz4")
    monkeypatch.setattr(parquet_texts, "_MOST_ITEMS", 0)  # PyArrow finds it
    assert needed_nbytes(data) == needed


def test_values_that_are_stored_themselves_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> int:
        raise AssertionError("measured")

    monkeypatch.setattr("aiostream_data.formats.parquet_directory.texts_nbytes", refused)
    values = [os.urandom(100_000) for _ in range(600)]
    data = written(values, write_batch_size=1, dictionary_pagesize_limit=100_000, data_page_size=100_000)
    assert needed_nbytes(data) < 2.5 * len(data)
    with pytest.raises(AssertionError, match="measured"):
        needed_nbytes(written(values[:1] * (REPEATED_NBYTES // 100_000 + 1)))
