"""WebDataset shards with drawn members and drawn damage: the same as tarfile reads, in any blocks, from any sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tars import FORMATS, archive, samples_by_tarfile
from skipping_reference import Left, Reading

from aiostream_data.formats import cutting
from aiostream_data.formats.stream import RecordStream
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.formats.webdataset_samples import WebDatasetSamples
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.testing.formats import blocks_of, read_blocks

keys = st.sampled_from(["a", "b/c", "d" * 60 + "/" + "e" * 60, "f" * 120, "é", "__meta__/x", "g.h/i", "j"])
extensions = st.sampled_from([".x", ".Y", ".x.y", ".é", "", "."])
members = st.lists(st.tuples(keys, extensions, st.binary(max_size=1100)), max_size=12)
sizes = st.lists(st.integers(0, 900), max_size=40)
formats = st.sampled_from(["gnu", "pax"])


@pytest.fixture(autouse=True, params=[600, 256 << 10])
def _lengths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "LONG_NBYTES", request.param)


def samples(stream: bytes, sizes: list[int], headroom: int) -> list[dict[str, Any]]:
    """Read the samples of a sound stream, cut into blocks."""
    reader = RecordStream(WebDatasetFormat(), "memory://stream", "")
    found: list[dict[str, Any]] = []
    for block in [*blocks_of(stream, sizes, headroom), None]:
        for column in reader.finish() if block is None else reader.feed(block, headroom):
            chunk = records_chunk(column, RowIds.run(0, 0, len(column)))
            found += WebDatasetSamples().parse(chunk, lambda row: ("", row)).elements()
    return found


@given(members, formats, sizes, st.sampled_from([0, 3, 2000]))
def test_samples_are_those_of_tarfile_or_an_error(
    members: list[tuple[str, str, bytes]], format: str, sizes: list[int], headroom: int
) -> None:
    assert format in FORMATS
    stream = archive([(key + extension, data) for key, extension, data in members], format)
    outcome = read_blocks(WebDatasetFormat(), stream, sizes, headroom)
    try:
        wanted = samples_by_tarfile(stream)
    except ValueError:
        assert outcome.error is not None
        return
    assert outcome.error is None
    assert samples(stream, sizes, headroom) == wanted


@st.composite
def damaged_shards(draw: st.DrawFn) -> bytes:
    """Draw shards with bytes changed, inserted and removed."""
    names = [f"{key}.{extension}" for key in "abcdef" for extension in draw(st.sampled_from(["x", "xy", "xyx", ""]))]
    stream = bytearray(archive([(name, draw(st.binary(max_size=600))) for name in names], draw(formats)))
    for _ in range(draw(st.integers(0, 3))):
        at = 512 * draw(st.integers(0, len(stream) // 512)) + draw(st.integers(0, 511))
        cut = draw(st.sampled_from([0, 1, 20, 512, 1024]))
        stream[at : at + cut] = draw(st.one_of(st.just(b""), st.binary(max_size=20), st.just(bytes(cut))))
    return bytes(stream)


@given(damaged_shards(), sizes, st.sampled_from([0, 3, 2000]))
def test_what_is_left_of_a_damaged_shard_does_not_depend_on_blocks(
    stream: bytes, sizes: list[int], headroom: int
) -> None:
    whole = Reading(WebDatasetFormat(), stream)
    left = whole.run()
    assert Reading(WebDatasetFormat(), stream).run(sizes, headroom) == left
    strict = read_blocks(WebDatasetFormat(), stream, sizes, headroom)
    assert left.records[: len(strict.records)] == strict.records
    if strict.error is None:
        assert not left.losses


@given(damaged_shards(), sizes)
def test_reading_goes_on_alike_from_every_sample(stream: bytes, sizes: list[int]) -> None:
    whole = Reading(WebDatasetFormat(), stream)
    left = whole.run(sizes)
    if any("is used again" in loss.reason for loss in whole.losses):
        return  # keys of samples before the position are unknown
    for number, offset in enumerate(whole.offsets):
        assert offset is not None
        again = Reading(WebDatasetFormat(), stream, offset=offset).run(sizes)
        assert again == Left(left.records[number:], [loss for loss in left.losses if loss[0] > offset])


def test_recovered_samples_are_arrays_of_the_stream() -> None:
    stream = bytearray(archive([(f"{key}.x", b"1") for key in "abcdef"]))
    stream[1024 + 3] ^= 1
    reading = Reading(WebDatasetFormat(), bytes(stream))
    assert np.array(reading.run([100] * 80).records).shape == (3,)
    assert reading.losses[0].reason.startswith("no valid tar header at byte 1024")
