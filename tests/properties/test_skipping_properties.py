"""Damaged streams with losses skipped: the same as by the reference, in any blocks, from any known record on."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from skipping_reference import Left, Reading, lines, tfrecords

from aiostream_data._native.framing_py import crc32c
from aiostream_data.formats import tfrecord_recovery
from aiostream_data.formats.base import Format
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.range_checksums import crc32c_ranges
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.testing.formats import read_blocks

records = st.lists(st.one_of(st.binary(max_size=40), st.just(frame(b"inner")), st.just(bytes(30))), max_size=12)
sizes = st.lists(st.integers(0, 60), max_size=60)
text_like = st.lists(st.sampled_from([b"\n", b"\r\n", b"abc", b"\xc3\xa9", b"\xef\xbb\xbf", b"\xff", b"\x81"])).map(
    b"".join
)


@pytest.fixture(autouse=True, params=[13, 50, 1 << 18])
def _small_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord_recovery, "WINDOW_NBYTES", request.param)


@st.composite
def damaged_frames(draw: st.DrawFn) -> bytes:
    """Draw TFRecords with bytes changed, inserted, removed and overwritten by others."""
    stream = bytearray(b"".join(map(frame, draw(records))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(stream)))
        cut = draw(st.integers(0, min(30, len(stream) - at)))
        stream[at : at + cut] = draw(
            st.one_of(st.just(b""), st.binary(max_size=20), st.just(bytes(cut)), st.just(frame(bytes(60))[:20]))
        )
    return bytes(stream)


@given(damaged_frames(), sizes, st.sampled_from([0, 3, 64]), st.booleans(), st.sampled_from([20, 1000]))
@example(frame(b"a" * 9)[:-1] + b"x" + frame(b"b"), [], 0, True, 1000)
def test_what_is_left_of_tfrecords_is_what_the_reference_says(
    stream: bytes, sizes: list[int], headroom: int, verify: bool, most_nbytes: int
) -> None:
    description = TFRecordFormat(verify=verify, max_record_nbytes=most_nbytes)
    reading = Reading(description, stream)
    assert reading.run(sizes, headroom) == tfrecords(stream, verify, most_nbytes)
    packed = zlib.compress(stream)
    reading = Reading(description, packed, "zlib")  # the end is not known before it is there
    assert reading.run(sizes, headroom) == tfrecords(stream, verify, most_nbytes)


@given(damaged_frames(), sizes)
@example(frame(b"a")[:-1] + b"-" + frame(b"inner") + b"left", [17, 20])
def test_reading_goes_on_alike_from_every_record(stream: bytes, sizes: list[int]) -> None:
    whole = Reading(TFRecordFormat(), stream)
    left = whole.run(sizes)
    places = [place for place, kind in enumerate(whole.order) if kind == "r"]
    for number, (offset, place) in enumerate(zip(whole.offsets, places, strict=True)):
        assert offset is not None
        again = Reading(TFRecordFormat(), stream, offset=offset)
        assert again.run(sizes) == Left(left.records[number:], [loss for loss in left.losses if loss[0] > offset])
        assert again.order == whole.order[place:]


@given(text_like, sizes, st.sampled_from([0, 3, 64]), st.sampled_from(["utf-8", "ascii", "cp1252", None]))
def test_what_is_left_of_text_is_what_the_reference_says(
    stream: bytes, sizes: list[int], headroom: int, encoding: str | None
) -> None:
    for most_nbytes in (3, 9, 1000):
        description = TextFormat(encoding=encoding, max_line_nbytes=most_nbytes)
        assert Reading(description, stream).run(sizes, headroom) == lines(stream, encoding, most_nbytes)


@given(damaged_frames(), text_like, sizes, st.sampled_from(["", "gzip", "auto"]))
def test_nothing_is_skipped_where_nothing_is_damaged(frames: bytes, text: bytes, sizes: list[int], how: str) -> None:
    formats: list[tuple[Format, bytes]] = [
        (TFRecordFormat(), frames),
        (TextFormat(encoding="latin-1"), text),
        (FixedLengthFormat(record_nbytes=3, header_nbytes=2), text),
    ]
    for description, stream in formats:
        strict = read_blocks(description, stream, sizes, 5, how)
        reading = Reading(description, stream, how)
        left = reading.run(sizes, 5)
        assert left.records[: len(strict.records)] == strict.records
        assert (strict.error is None) == (not left.losses)
        if strict.error is not None:
            assert left.losses[0][0] == strict.error.offset


@given(st.binary(max_size=300), st.data())
def test_checksums_of_ranges_are_those_of_each(values: bytes, data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(values)), st.integers(0, len(values))).map(sorted)
    ranges = np.array(data.draw(st.lists(bounds, max_size=20)), np.int64).reshape(-1, 2)
    found = crc32c_ranges(np.frombuffer(values, np.uint8), ranges[:, 0], ranges[:, 1])
    assert found.tolist() == [crc32c(values[start:stop]) for start, stop in ranges.tolist()]
