"""Shards that the webdataset library wrote are read as the library reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import Dataset
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.testing.formats import read_blocks

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@pytest.fixture
def wanted() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / "webdataset.json").read_text())
    return found


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_fields_are_those_that_the_library_reads(ending: str, wanted: list[dict[str, Any]]) -> None:
    path = str(GOLDEN / f"webdataset.{ending}")
    raw = [
        {"__key__": sample["key"], **{name: bytes.fromhex(value) for name, value in sample["fields"].items()}}
        for sample in wanted
    ]
    assert list(Dataset.from_webdataset(path)) == raw
    for sample, expected in zip(Dataset.from_webdataset(path, decode=True), wanted, strict=True):
        values = {name: sample[name] for name in ("cls", "json", "txt")} | {"npy": sample["npy"].tolist()}
        assert values == expected["values"]


def test_a_truncated_shard_is_an_error_wherever_it_is_cut(wanted: list[dict[str, Any]]) -> None:
    stream = (GOLDEN / "webdataset.tar").read_bytes()
    whole = read_blocks(WebDatasetFormat(), stream).records
    assert len(whole) == len(wanted)
    end = len(b"".join(whole))
    blocks = (at + more for at in range(0, len(stream), 512) for more in (-1, 0, 1))
    for stop in {*range(0, 6000, 5), *blocks}:
        if 0 <= stop < end + 512:
            records, error = read_blocks(WebDatasetFormat(), stream[:stop])
            assert error is not None
            assert records == whole[: len(records)]
