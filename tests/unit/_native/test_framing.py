"""The native framing kernels, and their twin."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from aiostream_data._native import framing_py
from aiostream_data.formats.tfrecord_writer import frame

MODULES: list[ModuleType] = [framing_py]
try:
    from aiostream_data._native import framing

    MODULES.append(framing)
except ImportError:
    pass

MAX = 1 << 30


def as_array(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def kernels(request: pytest.FixtureRequest) -> ModuleType:
    module = request.param
    assert isinstance(module, ModuleType)
    return module


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # these three are from RFC 3720, appendix B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_gives_the_published_values(kernels: ModuleType, data: bytes, checksum: int) -> None:
    assert kernels.crc32c(data) == checksum


def test_crc32c_continues_where_it_stopped(kernels: ModuleType) -> None:
    data = bytes(range(256)) * 30
    for cut in (0, 1, 191, 192, 767, 768, 769, 3072, len(data)):
        assert kernels.crc32c(data[cut:], kernels.crc32c(data[:cut])) == kernels.crc32c(data)


def test_crc32c_takes_any_contiguous_buffer(kernels: ModuleType) -> None:
    numbers = np.arange(5, dtype=np.float64)
    assert kernels.crc32c(numbers) == kernels.crc32c(numbers.tobytes()) == kernels.crc32c(bytearray(numbers.tobytes()))


def test_records_are_cut_between_start_and_stop_only(kernels: ModuleType) -> None:
    data = b"??" + frame(b"abc") + frame(b"") + frame(b"cut off")
    stop = 2 + len(frame(b"abc")) + len(frame(b"")) + 5
    starts, lengths, consumed, problem = kernels.frame_tfrecords(as_array(data), 2, stop, True, MAX)
    assert (starts.tolist(), lengths.tolist(), consumed, problem) == ([14, 33], [3, 0], stop - 5, None)
    assert (starts.dtype, lengths.dtype) == (np.int64, np.int64)


def test_more_records_than_the_first_index_arrays_hold(kernels: ModuleType) -> None:
    starts, _, consumed, problem = kernels.frame_tfrecords(as_array(frame(b"1") * 1500), 0, 1500 * 17, True, MAX)
    assert (len(starts), consumed, problem) == (1500, 1500 * 17, None)
    starts, lengths, consumed = kernels.find_lines(as_array(b"ab\n" * 1500), 0, 4500)
    assert (starts.tolist(), lengths.tolist(), consumed) == (list(range(0, 4500, 3)), [2] * 1500, 4500)


def test_length_is_not_believed_before_its_checksum_holds(kernels: ModuleType) -> None:
    claim = (1 << 20).to_bytes(8, "little") + b"\0\0\0\0"
    for verify in (False, True):
        *_, consumed, problem = kernels.frame_tfrecords(as_array(frame(b"good") + claim), 0, 32, verify, MAX)
        assert (consumed, problem) == (20, "length checksum mismatch")


def test_largest_length_that_fits_64_bits_is_refused(kernels: ModuleType) -> None:
    length = b"\xff" * 8
    header = length + kernels.masked_crc32c(length).to_bytes(4, "little")
    *_, consumed, problem = kernels.frame_tfrecords(as_array(header), 0, 12, True, 1 << 62)
    assert consumed == 0
    assert problem == f"record of {(1 << 64) - 1} bytes is longer than the limit of {1 << 62}"


def test_verify_governs_the_payload_checksum_only(kernels: ModuleType) -> None:
    data = bytearray(frame(b"payload"))
    data[14] ^= 1
    assert kernels.frame_tfrecords(as_array(bytes(data)), 0, len(data), False, MAX)[3] is None
    starts, _, consumed, problem = kernels.frame_tfrecords(as_array(bytes(data)), 0, len(data), True, MAX)
    assert (len(starts), consumed, problem) == (0, 0, "payload checksum mismatch")


def test_lines_end_before_newline_and_one_carriage_return(kernels: ModuleType) -> None:
    data = b"x\r\n\n\r\r\n\rlast"
    starts, lengths, consumed = kernels.find_lines(as_array(data), 0, len(data))
    assert [data[a : a + n] for a, n in zip(starts, lengths, strict=True)] == [b"x", b"", b"\r"]
    assert data[consumed:] == b"\rlast"


def test_carriage_return_before_start_is_not_part_of_the_line(kernels: ModuleType) -> None:
    starts, lengths, consumed = kernels.find_lines(as_array(b"\r\n"), 1, 2)
    assert (starts.tolist(), lengths.tolist(), consumed) == ([1], [0], 2)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 6), (6, 6)])
def test_bytes_outside_the_buffer_are_never_touched(kernels: ModuleType, start: int, stop: int) -> None:
    with pytest.raises(IndexError, match="outside a buffer of 5"):
        kernels.frame_tfrecords(as_array(b"abcde"), start, stop, True, MAX)
    with pytest.raises(IndexError, match="outside a buffer of 5"):
        kernels.find_lines(as_array(b"abcde"), start, stop)


def test_empty_buffer_holds_nothing(kernels: ModuleType) -> None:
    assert kernels.frame_tfrecords(as_array(b""), 0, 0, True, MAX)[2:] == (0, None)
    assert kernels.find_lines(as_array(b""), 0, 0)[2] == 0
