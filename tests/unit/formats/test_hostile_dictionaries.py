"""Offsets and indices of the dictionaries of Arrow files are checked before PyArrow reads the texts."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pytest
from table_bytes import plain_rows, rows_of

from aiostream_data import CorruptRecordError
from aiostream_data.formats.arrow_files import ArrowFormat

INDICES = (0, 1, 2, 0)
OFFSETS = (0, 4, 8, 12)
KINDS = {"<4i": pa.string(), "<4q": pa.large_string()}


def written(kind: str) -> bytes:
    out = io.BytesIO()
    texts = pa.array(["abc1", "xyz2", "four"], KINDS[kind])
    table = pa.table({"word": pa.DictionaryArray.from_arrays(pa.array(INDICES, pa.int32()), texts)})
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def changed(data: bytes, form: str, old: tuple[int, ...], new: tuple[int, ...]) -> bytes:
    found = struct.pack(form, *old)
    assert data.count(found) == 1
    return data.replace(found, struct.pack(form, *new))


def read(data: bytes) -> Any:
    return plain_rows(rows_of(ArrowFormat(), data))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offsets", [(0, -(2**30), 8, 12), (0, 2**30, 8, 12), (0, 4, 3, 12), (0, 4, 8, 2**30)])
def test_wrong_offsets_are_refused(kind: str, offsets: tuple[int, ...]) -> None:
    with pytest.raises(CorruptRecordError, match=r"the offsets decrease from|larger than values array"):
        read(changed(written(kind), kind, OFFSETS, offsets))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("indices", [(0, 1, 2**31 - 1, 0), (0, -1, 2, 0), (0, 3, 2, 0)])
def test_wrong_indices_beside_a_text_that_is_not_utf_8_are_refused(kind: str, indices: tuple[int, ...]) -> None:
    data = written(kind).replace(b"abc1", b"\xffbc1")
    with pytest.raises(CorruptRecordError, match="not valid UTF-8"):
        read(changed(data, "<4i", INDICES, indices))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_no_row_uses_need_not_be_utf_8(kind: str) -> None:
    data = written(kind).replace(b"abc1", b"\xffbc1")
    rows = read(changed(data, "<4i", INDICES, (1, 1, 2, 1)))
    assert [row["word"] for row in rows] == ["xyz2", "xyz2", "four", "xyz2"]
