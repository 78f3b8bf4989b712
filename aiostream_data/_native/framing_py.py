"""Split a buffer into records and compute CRC-32C checksums: the pure-Python version of ``framing.pyx``."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def _table_row(state: int) -> int:
    for _ in range(8):
        state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state


_TABLE = [_table_row(byte) for byte in range(256)]


def hardware_crc() -> bool:
    """Return True if checksum computation uses special CPU instructions on this machine."""
    return False


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of ``data`` (any contiguous buffer). ``value`` is the checksum of the preceding bytes."""
    state = value ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        state = (state >> 8) ^ _TABLE[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: Buffer) -> int:
    """Return the masked CRC-32C of ``data``, as stored in TFRecord files."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame_tfrecords(
    buffer: NDArray[np.uint8], start: int, stop: int, verify: bool, max_nbytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, str | None]:
    """Find the complete TFRecords in ``buffer[start:stop]``.

    A TFRecord consists of a little-endian u64 length, the masked CRC-32C of the length, the payload, and the masked
    CRC-32C of the payload. The parser always verifies the checksum of the length before it uses the length.

    Args:
        buffer: Contiguous uint8 array.
        start: Index of the first byte to read.
        stop: Index after the last byte to read.
        verify: If True, also verify the checksum of each payload.
        max_nbytes: Maximum payload size in bytes.

    Returns:
        Starts and lengths (int64) of the payloads in ``buffer``, the index after the last complete record, and the
        error of the next record. The error is None if the next record is only incomplete.

    Raises:
        IndexError: ``start`` or ``stop`` is outside the buffer.
    """
    _check(len(buffer), start, stop)
    data = buffer.data
    starts: list[int] = []
    lengths: list[int] = []
    problem: str | None = None
    at = start
    while stop - at >= _HEADER.size:
        length, checksum = _HEADER.unpack_from(data, at)
        payload = at + _HEADER.size
        end = payload + length
        if masked_crc32c(data[at : at + 8]) != checksum:
            problem = "length checksum mismatch"
        elif length > max_nbytes:
            problem = f"record of {length} bytes is longer than the limit of {max_nbytes}"
        elif end + _FOOTER.size <= stop and verify:
            problem = _payload_problem(data[payload:end], data[end : end + _FOOTER.size])
        if problem or end + _FOOTER.size > stop:
            break
        starts.append(payload)
        lengths.append(length)
        at = end + _FOOTER.size
    return np.array(starts, np.int64), np.array(lengths, np.int64), at, problem


def _payload_problem(payload: memoryview, footer: memoryview) -> str | None:
    return None if masked_crc32c(payload) == _FOOTER.unpack(footer)[0] else "payload checksum mismatch"


def find_lines(
    buffer: NDArray[np.uint8], start: int, stop: int, most_lines: int = sys.maxsize
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    r"""Find the first ``most_lines`` complete lines in ``buffer[start:stop]``.

    A line ends with ``\n`` or ``\r\n``. The line end is not part of the line.

    Returns:
        Starts and lengths (int64) of the lines in ``buffer``, and the index of the first byte after the last line.

    Raises:
        IndexError: ``start`` or ``stop`` is outside the buffer.
    """
    _check(len(buffer), start, stop)
    data = buffer[start:stop].tobytes()
    starts: list[int] = []
    lengths: list[int] = []
    at = 0
    while len(starts) < most_lines and (end := data.find(b"\n", at)) >= 0:
        starts.append(start + at)
        lengths.append(end - at - (data[at:end].endswith(b"\r")))
        at = end + 1
    return np.array(starts, np.int64), np.array(lengths, np.int64), start + at


def _check(size: int, start: int, stop: int) -> None:
    if not 0 <= start <= stop <= size:
        raise IndexError(f"bytes {start} to {stop} are outside a buffer of {size}")
