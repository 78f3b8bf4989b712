"""Files written by TensorFlow, against the values that TensorFlow parsed from them (``tests/data/make_golden.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import ExampleParseError
from aiostream_data.formats.example import ExampleParser, parse_example
from aiostream_data.formats.features import Feature, FixedLen, FixedLenSequence, VarLen
from aiostream_data.formats.sequence_example import RaggedSteps, SequenceExampleParser
from aiostream_data.formats.stream import RecordStream
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.rows.records import Columns, concat, records_chunk
from aiostream_data.rows.row_ids import RowIds

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())

suffixes = pytest.mark.parametrize("suffix", ["", ".gz", ".zlib"])


def records_of(name: str) -> Columns:
    """Return the records of a golden file as one chunk."""
    stream = RecordStream(TFRecordFormat(), name, "auto")
    block = np.frombuffer((GOLDEN / name).read_bytes(), np.uint8)
    columns = [*stream.feed(block.copy(), 0), *stream.finish()]
    whole = concat([records_chunk(column, RowIds.run(0, 0, len(column))) for column in columns])
    assert isinstance(whole, Columns)
    return whole


def described(given: dict[str, list[Any]]) -> dict[str, Feature]:
    return {name: description(*one) for name, one in given.items()}


def description(name: str, shape: list[int] | None, dtype: str, extra: Any) -> Feature:
    kind: Any = bytes if dtype == "bytes" else np.dtype(dtype)
    if shape is None:
        return VarLen(kind)
    if name == "FixedLenSequence":
        return FixedLenSequence(tuple(shape), kind, allow_missing=extra)
    return FixedLen(tuple(shape), kind, default=encoded(extra) if kind is bytes else extra)


def encoded(default: Any) -> Any:
    """Return a default with its text as bytes, which JSON does not have."""
    return default.encode() if isinstance(default, str) else [encoded(one) for one in default] if default else default


def assert_same(value: Any, expected: dict[str, Any]) -> None:
    """Check shape and values; floats bit for bit."""
    if isinstance(value, RaggedSteps):
        assert value.lengths.tolist() == expected["lengths"]
        value = value.values
    array = np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
    assert list(array.shape) == expected["shape"]
    if array.dtype == object:
        assert [one.hex() for one in array.ravel().tolist()] == expected["data"]
    elif array.dtype == np.float32:
        assert array.tobytes().hex() == expected["data"]
    else:
        assert array.dtype == np.int64
        assert array.ravel().tolist() == expected["data"]


@suffixes
@pytest.mark.parametrize("name", ["kinds", "lists"])
def test_r35_files_written_by_tensorflow_are_read_to_equal_values(name: str, suffix: str) -> None:
    chunk = records_of(f"{name}.tfrecord{suffix}")
    expected = EXPECTED[name]
    rows = ExampleParser(described(expected["features"])).parse(chunk, lambda row: (name, row)).elements()
    assert len(rows) == len(expected["rows"])
    for row, values in zip(rows, expected["rows"], strict=True):
        assert row.keys() == values.keys()
        for feature, value in values.items():
            assert_same(row[feature], value)


@suffixes
def test_r35_sequence_examples_written_by_tensorflow_are_read_to_equal_values(suffix: str) -> None:
    chunk = records_of(f"sequences.tfrecord{suffix}")
    expected = EXPECTED["sequences"]
    parser = SequenceExampleParser(described(expected["context"]), described(expected["sequences"]))
    rows = parser.parse(chunk, lambda row: ("sequences", row)).elements()
    assert len(rows) == len(expected["rows"])
    for row, values in zip(rows, expected["rows"], strict=True):
        found = {**row["context"], **row["sequences"]}
        assert found.keys() == values.keys()
        for feature, value in values.items():
            assert_same(found[feature], value)


@pytest.mark.parametrize(("given", "record"), EXPECTED["rejected"])
def test_r35_records_that_tensorflow_refuses_are_refused(given: list[Any], record: str) -> None:
    with pytest.raises(ExampleParseError):
        parse_example(bytes.fromhex(record), {"x": description(*given)})
