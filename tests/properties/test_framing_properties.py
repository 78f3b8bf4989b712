"""Framing over random bytes: native equals twin, block cuts do not matter, what is written is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import framing_py
from aiostream_data.formats.base import Format
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import TFRecordWriter, frame
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.testing.formats import read_blocks

records = st.lists(st.binary(max_size=60), max_size=12)
block_sizes = st.lists(st.integers(0, 40), max_size=60)
text_like = st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xc3\xa9", b"\xef\xbb\xbf", b"\xff"])).map(b"".join)
formats: st.SearchStrategy[Format] = st.one_of(
    st.builds(TFRecordFormat, verify=st.booleans(), max_record_nbytes=st.integers(0, 60)),
    st.builds(
        TextFormat,
        encoding=st.sampled_from(["utf-8", "ascii", "latin-1", "cp1252", None]),
        max_line_nbytes=st.integers(1, 9),
    ),
    st.builds(
        FixedLengthFormat,
        record_nbytes=st.integers(1, 9),
        header_nbytes=st.integers(0, 9),
        footer_nbytes=st.integers(0, 9),
    ),
    st.builds(WholeFileFormat, max_record_nbytes=st.integers(0, 90)),
)


@st.composite
def mutated_frames(draw: st.DrawFn) -> bytes:
    """Draw a TFRecord stream, mostly valid, with a few bytes changed, and perhaps an end cut off."""
    stream = bytearray(b"".join(map(frame, draw(records))))
    for _ in range(draw(st.integers(0, 2)) if stream else 0):
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    return bytes(stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream)


streams = st.one_of(st.binary(max_size=200), mutated_frames(), text_like)


@given(streams, st.data(), st.booleans(), st.integers(-1, 70))
def test_native_and_twin_frame_alike(stream: bytes, data: st.DataObject, verify: bool, limit: int) -> None:
    framing = pytest.importorskip("aiostream_data._native.framing")
    start = data.draw(st.integers(0, len(stream)))
    stop = data.draw(st.integers(start, len(stream)))
    buffer = np.frombuffer(stream, np.uint8)
    if data.draw(st.booleans()):
        start = 0
    native = framing.frame_tfrecords(buffer, start, stop, verify, max(limit, 0))
    twin = framing_py.frame_tfrecords(buffer, start, stop, verify, max(limit, 0))
    assert [native[0].tolist(), native[1].tolist(), *native[2:]] == [twin[0].tolist(), twin[1].tolist(), *twin[2:]]
    native_lines = framing.find_lines(buffer, start, stop)
    twin_lines = framing_py.find_lines(buffer, start, stop)
    assert [np.asarray(part).tolist() for part in native_lines] == [np.asarray(part).tolist() for part in twin_lines]


@given(st.binary(max_size=8000), st.integers(0, 2**32 - 1))
def test_instructions_tables_and_twin_sum_alike(data: bytes, value: int) -> None:
    framing = pytest.importorskip("aiostream_data._native.framing")
    assert framing.crc32c(data, value) == framing_py.crc32c(data, value)
    assert framing.crc32c_table(data) == framing.crc32c(data)
    assert framing.masked_crc32c(data) == framing_py.masked_crc32c(data)


@given(formats, streams, block_sizes, st.sampled_from([0, 3, 64]), st.sampled_from(["", "auto"]))
def test_records_and_errors_do_not_depend_on_where_blocks_end(
    description: Format, stream: bytes, sizes: list[int], headroom: int, compression: str
) -> None:
    whole = read_blocks(description, stream, [], 0, compression)
    cut = read_blocks(description, stream, sizes, headroom, compression)
    assert cut.records == whole.records
    assert str(cut.error) == str(whole.error)


@given(records, st.sampled_from(["", "gzip", "zlib", "zstd"]), block_sizes)
def test_what_the_writer_writes_is_read_back(written: list[bytes], compression: str, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tfrecord")
        with TFRecordWriter(path, compression) as writer:
            for record in written:
                writer.write(record)
        assert read_blocks(TFRecordFormat(), path.read_bytes(), sizes, 8, "auto") == (written, None)


@given(mutated_frames())
def test_no_mutation_yields_a_record_that_was_not_written_so(stream: bytes) -> None:
    found, error = read_blocks(TFRecordFormat(), stream)
    good = b"".join(map(frame, found))
    assert stream.startswith(good)
    assert (error is None) == (good == stream)
