"""A running hash of which rows were delivered, and at which position: two runs that agree saw the same data.

The hash is a sum over rows (``_native/hashing_py.py`` says how it is made, and what it does not promise). So the
hashes of the ranks of a run add up to the hash of one process that delivers the whole stream, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.hashing_py import SPLIT_BITS
from aiostream_data.arguments import several
from aiostream_data.errors import PlanError
from aiostream_data.rows.row_ids import RowIds

Salts: TypeAlias = NDArray[np.uint64]


class Names(Protocol):
    """Gives rows words that stand for their source, epoch and split, by names that stay."""

    of_split: int
    """What a split's number inside its source is multiplied by."""

    def salt_of(self, source: int) -> int:
        """Return the word for the source, and its epoch, whose number splits hold in their bits from 40 on."""

    def salts_of(self, ids: RowIds) -> Salts:
        """Return the words for rows of any sources, made in any way."""


FLUSH_ROWS: Final = 16_384
"""So many rows are hashed at once, in some 0.1 ms: a third of what they cost batch by batch."""

_WORD: Final = 2**64
_HEX: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StreamHash:
    """128 bits over rows, in two lanes that are sums modulo 2**64. Not to be shared between threads.

    Attributes:
        rows: How many rows it is over.
    """

    __slots__ = ("_high", "_low", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._low = self._high = 0

    def add(self, salts: Salts, ordinals: NDArray[np.int64], first_index: int, step: int = 1) -> None:
        """Add rows whose positions in the whole stream are ``first_index``, ``first_index + step``, and so on.

        Args:
            salts: uint64 (n,), what stands for the row's source, epoch and split.
            ordinals: int64 (n,), the row's place in its split.

        Raises:
            ValueError: The arrays do not fit, or a number is negative; nothing was added.
        """
        self.add_sums(*_native.hash_rows(salts, ordinals, first_index, step), len(salts))

    def add_sums(self, low: int, high: int, rows: int) -> None:
        """Add the lanes' sums over so many rows."""
        self._low, self._high = (self._low + low) % _WORD, (self._high + high) % _WORD
        self.rows += rows

    def copy(self) -> StreamHash:
        copied = StreamHash()
        copied.rows, copied._low, copied._high = self.rows, self._low, self._high
        return copied

    @property
    def value(self) -> int:
        """The hash as a number below 2**128; 0 over no rows."""
        return self._high * _WORD + self._low

    @property
    def hex(self) -> str:
        """The hash as 32 hexadecimal digits."""
        return f"{self.value:032x}"

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` takes, JSON-safe."""
        return {"hash": self.hex, "rows": self.rows}

    def restore(self, state: object) -> None:
        """Continue from ``state``, which is checked first.

        Raises:
            ValueError: It is not what :meth:`state` gives; nothing has changed.
        """
        found = _entries(state, {"hash", "rows"})
        low, high = _lanes(found["hash"])
        self.rows = _count(found["rows"], "rows")
        self._low, self._high = low, high


def combine_hashes(hashes: Iterable[str | StreamHash]) -> str:
    """Return the hash of a stream from the hashes of its parts, in any order: those of its ranks, say.

    Raises:
        ValueError: A string is not 32 hexadecimal digits in lower case.
    """
    low = high = 0
    for one in several("hashes", hashes, "a list of stream hashes"):
        lanes = _lanes(one.hex if isinstance(one, StreamHash) else one)
        low, high = low + lanes[0], high + lanes[1]
    return f"{high % _WORD:016x}{low % _WORD:016x}"


class Delivered:
    """The rows delivered so far. Not to be shared between threads.

    Rows of one source are hashed at once, in a single call that keeps the GIL; others in bulk, later.

    Args:
        names: Asked up to ``FLUSH_ROWS`` rows later than they were added. What it looks up must still be there,
            or :meth:`flush` be called before it goes.
        next_index: Position of the next row in the whole stream: at the start, the rank.
        step: From one row's position to the next: the number of ranks.
    """

    __slots__ = ("_hash", "_names", "_next_index", "_pending", "_pending_rows", "_salts", "_step")

    def __init__(self, names: Names, *, next_index: int = 0, step: int = 1) -> None:
        if next_index < 0 or step < 1:
            raise PlanError(f"next_index must be at least 0 and step at least 1, got {next_index} and {step}")
        self._names = names
        self._salts: dict[int, int] = {}
        self._next_index = next_index
        self._step = step
        self._hash = StreamHash()
        self._pending: list[RowIds] = []
        self._pending_rows = 0

    @property
    def next_index(self) -> int:
        """Position of the next row in the whole stream."""
        return self._next_index + self._step * self._pending_rows

    @property
    def rows(self) -> int:
        """Rows delivered, hashed yet or not."""
        return self._hash.rows + self._pending_rows

    def add(self, ids: RowIds) -> None:
        """Count the rows of ``ids`` as delivered next, in their order.

        Args:
            ids: Kept until the next flush; they must not change.

        Raises:
            ValueError: What was added since the last flush are no ids, or salts do not fit them.
        """
        rows = len(ids)
        if not rows:
            return
        pairs = ids.source_pairs()
        if not self._pending and pairs is not None and self._add_of_one_source(pairs):
            return
        self._pending.append(ids)
        self._pending_rows += rows
        if self._pending_rows >= FLUSH_ROWS:
            self.flush()

    def _add_of_one_source(self, ids: NDArray[np.int64]) -> bool:
        """Hash rows that are all of one source; False when they are not."""
        source = int(ids[0, 0]) >> SPLIT_BITS
        salt = self._salts.get(source)
        if salt is None:
            self._salts = {source: self._names.salt_of(source)}  # of the last one only: it hardly ever changes
            salt = self._salts[source]
        sums = _native.hash_ids(ids, source, salt, self._names.of_split, self._next_index, self._step)
        if sums is None:
            return False
        self._hash.add_sums(*sums, len(ids))
        self._next_index += self._step * len(ids)
        return True

    def flush(self) -> None:
        """Hash what has been added; after an error, nothing is lost and it can be tried again."""
        if not self._pending:
            return
        ids = RowIds.concat(self._pending)
        self._hash_into(self._hash, ids)
        self._next_index += self._step * len(ids)
        self._pending.clear()
        self._pending_rows = 0

    def value(self) -> StreamHash:
        """Return the hash over all rows delivered; the caller's own."""
        self.flush()
        return self._hash.copy()

    def value_with(self, extra_ids: RowIds) -> StreamHash:
        """Return the hash as if the rows of ``extra_ids`` had been delivered too, which they are not."""
        extended = self.value()
        if len(extra_ids):
            self._hash_into(extended, extra_ids)
        return extended

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` takes, JSON-safe: ``hash``, ``rows`` and ``next_index``."""
        self.flush()
        return {**self._hash.state(), "next_index": self._next_index}

    def restore(self, state: object) -> None:
        """Continue from ``state``, and drop what was added before. ``step`` stays what it is.

        Another number of ranks continues a stream when one of them takes the combined hash, the others that of
        no rows, and each the rows delivered in all plus its rank as ``next_index``.

        Raises:
            ValueError: It is not what :meth:`state` gives; nothing has changed.
        """
        found = _entries(state, {"hash", "rows", "next_index"})
        next_index = _count(found["next_index"], "next_index")
        self._hash.restore({"hash": found["hash"], "rows": found["rows"]})
        self._next_index = next_index
        self._pending.clear()
        self._pending_rows = 0

    def _hash_into(self, target: StreamHash, ids: RowIds) -> None:
        target.add(self._names.salts_of(ids), ids.ordinals, self._next_index, self._step)


def _entries(state: object, names: set[str]) -> dict[str, Any]:
    if not isinstance(state, dict) or state.keys() != names:
        raise PlanError(f"the state of a stream hash must be a dict of {', '.join(sorted(names))}")
    return state


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value < _WORD:
        raise PlanError(f"{name} of a stream hash must be an integer from 0 to 2**64 - 1")
    return value


def _lanes(text: object) -> tuple[int, int]:
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        found = repr(text[:40]) if isinstance(text, str) else type(text).__name__
        raise PlanError(f"a stream hash is 32 hexadecimal digits in lower case, got {found}")
    return int(text[16:], 16), int(text[:16], 16)
