"""Incremental hash of the delivered rows and their positions in the stream.

If two runs have equal hashes, they delivered the same rows.

The hash is a sum over all rows. ``_native/hashing_py.py`` describes the computation and its limits. The sum of all
ranks' hashes equals the hash of one process that delivers all rows in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.arguments import several
from aiostream_data.errors import PlanError
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.row_ids import RowIds

Salts: TypeAlias = NDArray[np.uint64]


class Names(Protocol):
    """Provider of salts. A salt is a 64-bit number for a row's source, epoch and split. Salts are the same in every
    run."""

    of_split: int
    """Factor by which the split number within a source is multiplied."""

    def salt_of(self, source: int) -> int:
        """Return the salt of one source in one epoch.

        ``source`` is the part of the split number above its lowest 40 bits.
        """

    def salts_of(self, ids: RowIds) -> Salts:
        """Return the salts of rows from any sources."""


FLUSH_ROWS: Final = 16_384
"""Number of rows to hash in one call, which takes about 0.1 ms. Hashing each batch separately takes three times as
long."""

LONG_RUN: Final = 256
"""Number of consecutive rows from which a run is hashed at once, although its salt takes 20 microseconds."""

_WORD: Final = 2**64
_HEX: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class StreamHash:
    """128-bit hash of rows, stored as two 64-bit sums modulo 2**64. Not thread-safe.

    Attributes:
        rows: Number of hashed rows.
    """

    __slots__ = ("_high", "_low", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._low = self._high = 0

    def add(self, salts: Salts, ordinals: NDArray[np.int64], first_index: int, step: int = 1) -> None:
        """Add rows with the stream positions ``first_index``, ``first_index + step``, and so on.

        Args:
            salts: Salt of each row, as uint64 array of shape (n,).
            ordinals: Number of each row within its split, as int64 array of shape (n,).
            first_index: Stream position of the first row.
            step: Distance between the stream positions of two consecutive rows.

        Raises:
            ValueError: The arrays have different shapes or wrong dtypes, or a number is negative. Nothing was added.
        """
        self.add_sums(*_native.hash_rows(salts, ordinals, first_index, step), len(salts))

    def add_sums(self, low: int, high: int, rows: int) -> None:
        """Add two precomputed sums over ``rows`` rows to the hash."""
        self._low, self._high = (self._low + low) % _WORD, (self._high + high) % _WORD
        self.rows += rows

    def copy(self) -> StreamHash:
        copied = StreamHash()
        copied.rows, copied._low, copied._high = self.rows, self._low, self._high
        return copied

    @property
    def value(self) -> int:
        """The hash as an integer below 2**128; 0 if no rows were hashed."""
        return self._high * _WORD + self._low

    @property
    def hex(self) -> str:
        """The hash as 32 hexadecimal digits."""
        return f"{self.value:032x}"

    def state(self) -> dict[str, Any]:
        """Return the hash as JSON-compatible data for :meth:`restore`."""
        return {"hash": self.hex, "rows": self.rows}

    def restore(self, state: object) -> None:
        """Validate ``state``, and continue from its hash.

        Raises:
            ValueError: ``state`` is not a result of :meth:`state`. The hash is unchanged.
        """
        found = _entries(state, {"hash", "rows"})
        low, high = _lanes(found["hash"])
        self.rows = _count(found["rows"], "rows")
        self._low, self._high = low, high


def combine_hashes(hashes: Iterable[str | StreamHash]) -> str:
    """Combine the hashes of the parts of a stream, such as its ranks, into the hash of the complete stream.

    Order is irrelevant.

    Raises:
        ValueError: A string is not 32 lower-case hexadecimal digits.
    """
    low = high = 0
    for one in several("hashes", hashes, "a list of stream hashes"):
        lanes = _lanes(one.hex if isinstance(one, StreamHash) else one)
        low, high = low + lanes[0], high + lanes[1]
    return f"{high % _WORD:016x}{low % _WORD:016x}"


class Delivered:
    """Hash of the rows delivered so far. Not thread-safe.

    Rows of a single source are hashed immediately, in one call that does not release the GIL. Rows of several sources
    are collected and hashed together later.

    Args:
        names: Provider of salts. The hash may call the provider late, after up to ``FLUSH_ROWS`` more rows are added.
            Call :meth:`flush` before discarding the provider's data.
        next_index: Stream position of the next row. The initial value is the rank.
        step: Distance between the stream positions of two consecutive rows, which is the number of ranks.
    """

    __slots__ = ("_hash", "_names", "_next_index", "_pending", "_pending_rows", "_run_salts", "_salts", "_step")

    def __init__(self, names: Names, *, next_index: int = 0, step: int = 1) -> None:
        if next_index < 0 or step < 1:
            raise PlanError(f"next_index must be at least 0 and step at least 1, got {next_index} and {step}")
        self._names = names
        self._salts: dict[int, int] = {}
        self._next_index = next_index
        self._step = step
        self._hash = StreamHash()
        self._run_salts: dict[tuple[int, ...], int] = {}
        self._pending: list[RowIds] = []
        self._pending_rows = 0

    @property
    def next_index(self) -> int:
        """Position of this process's next row in the stream of all ranks."""
        return self._next_index + self._step * self._pending_rows

    @property
    def rows(self) -> int:
        """Number of delivered rows, including rows that are not hashed yet."""
        return self._hash.rows + self._pending_rows

    def add(self, ids: RowIds) -> None:
        """Append the rows of ``ids``, in this order, to the delivered rows.

        Args:
            ids: Row ids. The hash keeps a reference to these row ids until the next flush. Do not modify them.

        Raises:
            ValueError: Ids added since the last flush are invalid, or their salts do not match.
        """
        rows = len(ids)
        if not rows:
            return
        run = ids.run_of_split()
        if run is not None and (rows >= LONG_RUN or (ids.are_sources() and not self._pending)):
            self.flush()
            self._add_run(ids, *run)
            return
        pairs = ids.source_pairs()
        if not self._pending and pairs is not None and self._add_of_one_source(pairs):
            return
        self._pending.append(ids)
        self._pending_rows += rows
        if self._pending_rows >= FLUSH_ROWS:
            self.flush()

    def _add_run(self, ids: RowIds, ordinal: int, others: tuple[int, ...]) -> None:
        """Hash consecutive rows of one split immediately.

        Args:
            ordinal: Ordinal of the first row.
            others: The other numbers of the ids, which all rows share. See :meth:`.RowIds.run_of_split`.
        """
        if ids.are_sources():
            salt = (self._salt_of(others[0] >> SPLIT_BITS) + (others[0] & SPLIT_MASK) * self._names.of_split) % _WORD
        else:
            if others not in self._run_salts:
                self._run_salts = {others: int(self._names.salts_of(ids.row(0))[0])}  # only of the last run
            salt = self._run_salts[others]
        sums = _native.hash_run(salt, ordinal, len(ids), self._next_index, self._step)
        self._hash.add_sums(*sums, len(ids))
        self._next_index += self._step * len(ids)

    def _salt_of(self, source: int) -> int:
        salt = self._salts.get(source)
        if salt is None:
            self._salts = {source: self._names.salt_of(source)}  # only for the last source, which rarely changes
            salt = self._salts[source]
        return salt

    def _add_of_one_source(self, ids: NDArray[np.int64]) -> bool:
        """Hash rows immediately if all rows are from a single source.

        Return False, without hashing, if the rows are from several sources.
        """
        source = int(ids[0, 0]) >> SPLIT_BITS
        salt = self._salt_of(source)
        sums = _native.hash_ids(ids, source, salt, self._names.of_split, self._next_index, self._step)
        if sums is None:
            return False
        self._hash.add_sums(*sums, len(ids))
        self._next_index += self._step * len(ids)
        return True

    def flush(self) -> None:
        """Hash all added rows. After an error, the rows are kept, so that the caller can retry ``flush``."""
        if not self._pending:
            return
        ids = RowIds.concat(self._pending)
        self._hash_into(self._hash, ids)
        self._next_index += self._step * len(ids)
        self._pending.clear()
        self._pending_rows = 0

    def value(self) -> StreamHash:
        """Return a copy of the hash of all delivered rows."""
        self.flush()
        return self._hash.copy()

    def value_with(self, extra_ids: RowIds) -> StreamHash:
        """Return the hash as if the rows of ``extra_ids`` had been delivered next."""
        extended = self.value()
        if len(extra_ids):
            self._hash_into(extended, extra_ids)
        return extended

    def state(self) -> dict[str, Any]:
        """Return ``hash``, ``rows`` and ``next_index`` as JSON-compatible data for :meth:`restore`."""
        self.flush()
        return {**self._hash.state(), "next_index": self._next_index}

    def restore(self, state: object) -> None:
        """Continue from ``state``, and discard all previously added rows. ``step`` is unchanged.

        A stream can be resumed with a different number of ranks. To change the number of ranks, one rank restores the
        combined hash, and the other ranks restore the hash of 0 rows. On each rank, ``next_index`` is the rank plus the
        total number of delivered rows.

        Raises:
            ValueError: ``state`` is not a result of :meth:`state`. The object is unchanged.
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
