"""HighwayHash-64 of many spans of bytes: the pure-Python version of ``highway.h``.

The state of each span is four variables of four 64-bit words. Each step processes one packet of 32 bytes of every span
that has one. The arithmetic of NumPy wraps at 64 bits.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.span_checks import Numbers, check_inside

Words: TypeAlias = NDArray[np.uint64]

_PACKET_NBYTES: Final = 32
_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_ZIP: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
"""Order in which the bytes of two words are added to two words."""

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_ROUNDS: Final = 4


def highway_spans(
    values: NDArray[np.uint8], starts: Numbers, lengths: Numbers, key: tuple[int, int, int, int]
) -> Words:
    """Return the HighwayHash-64 of ``values[starts[i] : starts[i] + lengths[i]]`` for each i.

    Args:
        values: Bytes, a contiguous vector of uint8.
        starts: Index of the first byte of each span, int64.
        lengths: Number of bytes of each span, int64.
        key: Four words of 64 bits.

    Returns:
        One uint64 per span.

    Raises:
        IndexError: A span is outside ``values``.
        ValueError: ``values`` is not a contiguous uint8 vector, or the spans are invalid as in :func:`read_spans`.
    """
    check_inside(values, starts, lengths)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    state = _State(np.array(key, np.uint64), len(order))
    packets = lengths // _PACKET_NBYTES
    for number in range(int(packets.max(initial=0))):
        count = int(np.count_nonzero(packets > number))  # the longest spans are first
        state.add(slice(count), _packets(values, starts[:count] + number * _PACKET_NBYTES))
    for row in np.flatnonzero(lengths % _PACKET_NBYTES).tolist():
        stop = int(starts[row] + lengths[row])
        state.add_rest(row, values[stop - int(lengths[row]) % _PACKET_NBYTES : stop])
    hashes = np.empty(len(order), np.uint64)
    hashes[order] = state.finish()
    return hashes


class _State:
    """State of the hashes of many spans: four variables of shape (n, 4)."""

    def __init__(self, key: Words, count: int) -> None:
        self._mul0 = np.tile(np.array(_MUL0, np.uint64), (count, 1))
        self._mul1 = np.tile(np.array(_MUL1, np.uint64), (count, 1))
        self._v0 = self._mul0 ^ key
        self._v1 = self._mul1 ^ _swapped(key)

    def add(self, rows: slice, packets: Words) -> None:
        """Add one packet of shape (4,) to each of the rows."""
        v0, v1, mul0, mul1 = self._v0[rows], self._v1[rows], self._mul0[rows], self._mul1[rows]
        v1 += mul0 + packets
        mul0 ^= (v1 & _LOW) * (v0 >> _HALF)
        v0 += mul1
        mul1 ^= (v0 & _LOW) * (v1 >> _HALF)
        v0 += _zipped(v1)
        v1 += _zipped(v0)

    def add_rest(self, row: int, rest: NDArray[np.uint8]) -> None:
        """Add the last 1 to 31 bytes of a span."""
        nbytes = len(rest)
        odd = nbytes % 4
        self._v0[row] += np.uint64((nbytes << 32) + nbytes)
        halves = self._v1[row : row + 1].view(np.uint32)
        halves[:] = halves << np.uint32(nbytes) | halves >> np.uint32(32 - nbytes)
        packet = np.zeros(_PACKET_NBYTES, np.uint8)
        packet[: nbytes - odd] = rest[: nbytes - odd]
        if nbytes & 16:
            packet[28:] = rest[-4:]
        elif odd:
            packet[16:19] = rest[[nbytes - odd, nbytes - odd + odd // 2, nbytes - 1]]
        self.add(slice(row, row + 1), packet.view("<u8").astype(np.uint64)[None])

    def finish(self) -> Words:
        for _ in range(_ROUNDS):
            self.add(slice(None), _swapped(self._v0[:, [2, 3, 0, 1]]))
        found: Words = (self._v0 + self._v1 + self._mul0 + self._mul1)[:, 0]
        return found


def _packets(values: NDArray[np.uint8], starts: Numbers) -> Words:
    """Return the packets that begin at some bytes, as words of shape (n, 4)."""
    rows = values[starts[:, None] + np.arange(_PACKET_NBYTES)]
    packets: Words = rows.view("<u8").astype(np.uint64, copy=False)
    return packets


def _swapped(words: Words) -> Words:
    swapped: Words = words >> _HALF | words << _HALF
    return swapped


def _zipped(words: Words) -> Words:
    """Return the bytes of each pair of words in another order."""
    pairs = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8).reshape(len(words), 2, 16)
    mixed: Words = np.ascontiguousarray(pairs[:, :, _ZIP]).reshape(len(words), 32).view("<u8")
    return mixed.astype(np.uint64, copy=False)
