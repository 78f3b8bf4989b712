"""Records are found again behind damage in time proportional to the bytes, also where they were made to be slow."""

from __future__ import annotations

import random
import struct
from time import thread_time

import numpy as np
import pytest

from aiostream_data._native import HAVE_NATIVE, masked_crc32c
from aiostream_data.formats.base import Loss
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame

MIB = 1 << 20
FAR = 32 << 10
"""Bytes that have to be looked at before it is known that a header lies."""

pytestmark = pytest.mark.skipif(not HAVE_NATIVE, reason="checksums in pure Python take minutes")


def header(length: int) -> bytes:
    """Return a header whose checksum holds, and behind which nothing has to be."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def read(stream: bytes, block_nbytes: int = MIB) -> tuple[int, int, int, float]:
    """Return records, losses, the most bytes held, and seconds of CPU."""
    losses: list[Loss] = []
    reader = SkippingStream(TFRecordFormat(), "memory://x", "", report=losses.append, nbytes=len(stream))
    values, rows, most = np.frombuffer(stream, np.uint8), 0, 0
    started = thread_time()
    for at in range(0, len(stream), block_nbytes):
        rows += sum(map(len, reader.feed(values[at : at + block_nbytes], 0)))
        most = max(most, reader.held_nbytes)
    rows += sum(map(len, reader.finish()))
    return rows, len(losses), most, thread_time() - started


RECORD = frame(b"x" * 1000)
DAMAGED = {
    "noise": random.Random(0).randbytes(10 * MIB),
    "zeros": bytes(10 * MIB),
    "a header": b"\1" + RECORD[1:],
    "every header": (b"\1" + RECORD[1:]) * (10 * MIB // len(RECORD)),
    "every other payload": (RECORD + RECORD[:-1] + b"\1") * (5 * MIB // len(RECORD)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_ten_mebibytes_of_damage_take_less_than_a_second(name: str) -> None:
    behind = RECORD * 100
    rows, losses, most, seconds = read(DAMAGED[name] + behind)
    assert rows >= 100
    assert losses >= 1
    assert most < 3 * MIB
    assert seconds < 1


@pytest.mark.parametrize(
    "unit",
    [header(FAR), header(100), header(0), header(FAR) + frame(b""), header(FAR) + frame(b"") + b"x"],
    ids=["long", "short", "empty", "records between", "records and damage between"],
)
def test_four_times_as_many_headers_that_lie_take_four_times_as_long(unit: bytes) -> None:
    read(unit * 1000)
    once = min(read(unit * (MIB // 2 // len(unit)))[3] for _ in range(2))
    four_times = min(read(unit * (2 * MIB // len(unit)))[3] for _ in range(2))
    assert four_times < 8 * once


def test_what_is_gathered_for_a_header_that_lies_is_bounded_by_what_it_claims() -> None:
    stream = header(3 * MIB) * (10 * MIB // 12)
    assert read(stream)[2] <= 8 * MIB
