"""Arrow streams end at their end mark: what follows it is an error, and not ignored."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from aiostream_data import CorruptRecordError, Dataset


def stream(first: int) -> bytes:
    table = pa.table({"n": range(first, first + 3)})
    with BytesIO() as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        return file.getvalue()


@pytest.mark.parametrize("behind", [stream(3), b"\xff", bytes(64)], ids=["another stream", "garbage", "zeros"])
def test_bytes_behind_the_end_mark_are_refused(behind: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(0) + behind)
    told = f"{len(behind)} bytes follow the end mark of the stream, such as another stream"
    with pytest.raises(CorruptRecordError, match=told) as raised:
        list(Dataset.from_arrow(tmp_path / "a.arrow"))
    assert raised.value.offset == len(stream(0))


def test_each_stream_of_its_own_file_is_read(tmp_path: Path) -> None:
    for first in (0, 3):
        (tmp_path / f"{first}.arrow").write_bytes(stream(first))
    assert [row["n"] for row in Dataset.from_arrow(f"{tmp_path}/*.arrow")] == list(range(6))
