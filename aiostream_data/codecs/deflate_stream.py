"""Incremental decompression of gzip and zlib; see :mod:`.compression`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

from aiostream_data.codecs.deflate import WINDOW_BITS, deflate_library
from aiostream_data.errors import CorruptRecordError

DEFLATE_NBYTES = 64 << 10
"""Memory in bytes of one gzip or zlib decompressor: a window of 32 KiB, and its tables."""

_LEAST_INPUT_NBYTES = 16 << 10
"""Input of the first step of a gzip member or zlib stream, in bytes. The input of later steps grows.

Each step takes and releases the GIL, copies the state of the decompressor, and copies the input that it leaves. So
large steps are faster, but many short members would take quadratic time.
"""

_INPUT_SHARE = 2
"""The input of one step has at most this fraction (1/2) of the maximum output, as data in records often need."""

_NARROWING = 16
"""Damage is searched in this fraction (1/16) of the input of a step, then in a fraction of it, and so on."""


class DeflateStream:
    """Decompressor for one zlib stream, or for gzip with any number of members and trailing zero bytes."""

    held_nbytes = DEFLATE_NBYTES

    def __init__(self, name: Literal["gzip", "zlib"], url: str, step_nbytes: int) -> None:
        self._name = name
        self._url = url
        self._step_nbytes = step_nbytes
        self._library = deflate_library()
        self._input_nbytes = _LEAST_INPUT_NBYTES
        self._state: zlib._Decompress | None = self._fresh()  # None after the end of a member
        self._padding = False
        self._produced = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            rest = bytes(data[at : at + self._input_nbytes])
            at += len(rest)
            self._input_nbytes = max(self._input_nbytes, min(2 * self._input_nbytes, self._step_nbytes // _INPUT_SHARE))
            pending = False
            while rest or pending:
                if self._state is None:
                    rest = self._next_member(rest)
                    continue
                out, rest, damage = self._step(self._state, rest)
                # After a full step zlib can hold more output although all input is consumed.
                pending = len(out) == self._step_nbytes and self._state is not None
                self._produced += len(out)
                if out:
                    yield out
                if damage:
                    raise self._corrupt(f"the {self._name} stream is damaged ({damage})")

    def finish(self) -> None:
        if self._state is not None:
            raise self._corrupt(f"the {self._name} stream is cut short")

    def discard(self) -> None:
        self._state = None

    def _step(self, state: zlib._Decompress, data: bytes) -> tuple[bytes, bytes, str]:
        """Return the output, the unused input, and a description of the damage after the output ("" without damage)."""
        before = state.copy()
        try:
            out = state.decompress(data, self._step_nbytes)
        except self._library.error as error:
            return self._until_damage(before, data), b"", str(error).rpartition(": ")[2]
        if state.eof:
            self._state = None
            return out, state.unused_data, ""
        return out, state.unconsumed_tail, ""

    def _next_member(self, rest: bytes) -> bytes:
        """Begin the next gzip member, or accept zero bytes as padding. Return the bytes that are still to decompress.

        Raises:
            CorruptRecordError: Other bytes follow the end of the stream.
        """
        if self._name == "gzip" and not rest.strip(b"\0"):
            self._padding = True
            return b""
        if self._padding or self._name != "gzip" or rest[0] != 0x1F:
            raise self._corrupt(f"garbage after the end of the {self._name} stream")
        self._state = self._fresh()
        return rest

    def _fresh(self) -> zlib._Decompress:
        self._input_nbytes = _LEAST_INPUT_NBYTES
        state: zlib._Decompress = self._library.decompressobj(WINDOW_BITS[self._name])
        return state

    def _until_damage(self, state: zlib._Decompress, data: bytes) -> bytes:
        """Decompress all bytes before the damage, in ever smaller pieces.

        The library returns no output from a step that contains damage.
        """
        out = bytearray()
        while True:
            size = max(1, len(data) // _NARROWING)
            for at in range(0, len(data), size):
                before, piece = state.copy(), data[at : at + size]
                try:
                    out += state.decompress(piece)
                except self._library.error:
                    break
            else:
                return bytes(out)
            if size == 1:
                return bytes(out)
            state, data = before, piece

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, self._produced, reason)
