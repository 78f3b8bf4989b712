"""Compressed files with row groups: the error names the compression."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from aiostream_data import CorruptRecordError, Dataset

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.compress,
}


def arrow() -> bytes:
    with BytesIO() as file:
        with pa.ipc.new_file(file, pa.schema({"n": pa.int64()})) as writer:
            writer.write_table(pa.table({"n": [1, 2, 3]}))
        return file.getvalue()


def numpy() -> bytes:
    with BytesIO() as file:
        np.save(file, np.arange(3))
        return file.getvalue()


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(("make", "source"), [(arrow, "from_arrow"), (numpy, "from_npy")])
def test_the_error_names_the_compression(
    make: Callable[[], bytes], source: str, compression: str, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(COMPRESS[compression](make()))
    with pytest.raises(CorruptRecordError, match=rf"this is a {compression} stream.*Decompress the file"):
        list(getattr(Dataset, source)(tmp_path / "data"))
