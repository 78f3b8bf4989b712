"""Compact list of shards: the names, sizes and versions of many shards in a few blocks of memory.

A Python object for each of 100,000 shards, with a string for its URL and its version, takes 250 bytes. A table takes
the bytes of the names behind a common prefix, the bytes of the versions, and 16 bytes. The table makes a
:class:`.ShardRef` when a shard is asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, islice, pairwise
from typing import Final, overload

from aiostream_data.rows.records import ShardRef

_UNKNOWN: Final = -1
"""Stored in place of a size that is not known."""

_MADE_AT_ONCE: Final = 1024
"""Number of strings of a :class:`Texts` that an iterator creates at once."""

_MOST_SHORT: Final = (1 << 32) - 1
"""Largest position in a block of text that a 4-byte integer can store."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts(Sequence[str]):
    """Immutable list of strings in one block of memory. Slices with step 1 share the block.

    Attributes:
        prefix: UTF-8 bytes with which each string begins.
        block: UTF-8 bytes of all strings, one after another, without the prefix.
        stops: End of each string in the block.
        first, length: The strings of the block that belong to this list.
    """

    prefix: bytes
    block: bytes
    stops: array[int]
    first: int
    length: int

    @classmethod
    def of(cls, texts: Iterable[str], prefix: str = "") -> Texts:
        """Return a list of the strings ``prefix + text`` for each ``text``."""
        found = _Writer(prefix)
        for text in texts:
            found.add(text)
        return found.texts()

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            start, stop, step = place.indices(self.length)
            if step != 1:
                return [self[one] for one in range(start, stop, step)]
            return Texts(self.prefix, self.block, self.stops, self.first + start, max(0, stop - start))
        at = self.first + range(self.length)[place]
        start = self.stops[at - 1] if at else 0
        return (self.prefix + self.block[start : self.stops[at]]).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for place in range(0, self.length, _MADE_AT_ONCE):
            yield from self._made(place, min(place + _MADE_AT_ONCE, self.length))

    def _made(self, first: int, last: int) -> Iterable[str]:
        """Return strings ``first`` to ``last - 1``. Cutting decoded text takes less time than decoding each string."""
        begin = self.first + first
        starts = [self.stops[begin - 1] if begin else 0, *self.stops[begin : self.first + last]]
        block = self.block[starts[0] : starts[-1]]
        if not block.isascii():
            return map(self.__getitem__, range(first, last))
        prefix, text, base = self.prefix.decode("utf-8", "surrogatepass"), block.decode("ascii"), starts[0]
        return [prefix + text[start - base : stop - base] for start, stop in pairwise(starts)]

    def contains_any(self, characters: str) -> bool:
        """Return True if the block or the prefix contains one of some ASCII characters."""
        return any(each in self.block or each in self.prefix for each in (one.encode() for one in characters))


class _Writer:
    """Collects the strings of a :class:`Texts`."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = _encoded(prefix)
        self._block = bytearray()
        self._stops = array("I")

    def add(self, text: str) -> None:
        self._block += _encoded(text)
        stop = len(self._block)
        if stop > _MOST_SHORT and self._stops.typecode == "I":
            self._stops = array("Q", self._stops)
        self._stops.append(stop)

    def extend(self, texts: Sequence[str]) -> None:
        joined = "".join(texts)
        encoded = _encoded(joined)
        if len(encoded) != len(joined) or len(self._block) + len(encoded) > _MOST_SHORT:
            for text in texts:
                self.add(text)
            return
        self._stops.extend(islice(accumulate(map(len, texts), initial=len(self._block)), 1, None))
        self._block += encoded

    def texts(self) -> Texts:
        return Texts(self._prefix, bytes(self._block), self._stops[:], 0, len(self._stops))


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable(Sequence[ShardRef]):
    """Immutable list of shards. Slices with step 1 share the memory of the table. Can be pickled.

    Equal to every sequence of equal shards.

    Attributes:
        urls: URL of each shard.
        sizes: Size of each shard in bytes, int64; -1 if unknown.
        versions: Version of each shard; "" if unknown.
    """

    urls: Texts
    sizes: array[int]
    versions: Texts

    @classmethod
    def of(cls, shards: Iterable[ShardRef], prefix: str = "") -> ShardTable:
        """Return a table of shards.

        Args:
            prefix: Common beginning of all URLs, which is stored only once.
        """
        writer = ShardTableWriter(prefix)
        skipped = len(prefix)
        for shard in shards:
            writer.add(shard.url[skipped:], shard.nbytes, shard.version)
        return writer.table()

    def behind(self, prefix: str) -> ShardTable:
        """Return the same shards with a prefix before each URL. Shares the memory of this table."""
        return ShardTable(replace(self.urls, prefix=_encoded(prefix) + self.urls.prefix), self.sizes, self.versions)

    def in_url_order(self) -> ShardTable:
        """Return the shards sorted by URL. Of shards with equal URLs, only the last one is kept."""
        if all(before < behind for before, behind in pairwise(self.urls)):
            return self
        order = sorted(range(len(self)), key=self.urls.__getitem__)
        kept = (place for _, equals in groupby(order, self.urls.__getitem__) for *_, place in [equals])
        return ShardTable.of(map(self._shard, kept), self.prefix)

    @property
    def prefix(self) -> str:
        """Beginning that all URLs share, which may be shorter than possible."""
        return self.urls.prefix.decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, place: int) -> ShardRef: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ShardRef]: ...
    def __getitem__(self, place: int | slice) -> ShardRef | Sequence[ShardRef]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                return [self[one] for one in range(start, stop, step)]
            part = slice(start, max(start, stop))
            urls, versions = self.urls[part], self.versions[part]
            assert isinstance(urls, Texts)
            assert isinstance(versions, Texts)
            return ShardTable(urls, self.sizes[part], versions)
        return self._shard(range(len(self))[place])

    def __iter__(self) -> Iterator[ShardRef]:
        return map(self._shard, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the number of shards and the first one, because a table may have millions."""
        return f"<{len(self)} shards, the first is {self[0] if len(self) else None}>"

    def _shard(self, place: int) -> ShardRef:
        nbytes = self.sizes[place]
        return ShardRef(self.urls[place], None if nbytes == _UNKNOWN else nbytes, self.versions[place])


class ShardTableWriter:
    """Collects the shards of a :class:`ShardTable`.

    Args:
        prefix: Common beginning of all URLs, which is stored only once.
    """

    def __init__(self, prefix: str = "") -> None:
        self._urls, self._sizes, self._versions = _Writer(prefix), array("q"), _Writer()

    def add(self, name: str, nbytes: int | None, version: str) -> None:
        """Append the shard with the URL ``prefix + name``; see :class:`.ShardRef`."""
        self._urls.add(name)
        self._sizes.append(_UNKNOWN if nbytes is None else nbytes)
        self._versions.add(version)

    def extend(self, names: Sequence[str], sizes: Sequence[int], versions: Sequence[str]) -> None:
        """Append shards, in a fraction of the time of :meth:`add` for each. An unknown size is -1."""
        self._urls.extend(names)
        self._sizes.extend(sizes)
        self._versions.extend(versions)

    def table(self) -> ShardTable:
        """Return the collected shards."""
        return ShardTable(self._urls.texts(), self._sizes[:], self._versions.texts())


def urls_of(shards: Sequence[ShardRef]) -> Sequence[str]:
    """Return the URLs of shards, without a copy of those of a table."""
    return shards.urls if isinstance(shards, ShardTable) else [shard.url for shard in shards]


def known_versions(shards: Sequence[ShardRef]) -> Sequence[str] | None:
    """Return the version of each shard, without a copy of those of a table. Return None if a version is unknown."""
    versions = shards.versions if isinstance(shards, ShardTable) else [shard.version for shard in shards]
    return versions if all(versions) else None


def sizes_of(shards: Sequence[ShardRef | None]) -> list[int | None]:
    """Return the size of each shard; None for a size that is not known, and for a shard that is missing."""
    if isinstance(shards, ShardTable):
        return [None if nbytes == _UNKNOWN else nbytes for nbytes in shards.sizes]
    return [None if shard is None else shard.nbytes for shard in shards]


def joined_tables(parts: Sequence[Sequence[ShardRef]]) -> ShardTable:
    """Return one table with the shards of several lists, in order."""
    if len(parts) == 1 and isinstance(parts[0], ShardTable):
        return parts[0]
    prefix = shared_prefix([end for part in parts if len(part) for end in _ends_of(part)])
    writer, skipped = ShardTableWriter(prefix), len(prefix)
    for part in parts:
        table = part if isinstance(part, ShardTable) else ShardTable.of(part)
        writer.extend([url[skipped:] for url in table.urls], table.sizes, list(table.versions))
    return writer.table()


def shared_prefix(texts: Sequence[str]) -> str:
    """Return the longest string with which all texts begin."""
    first, last = min(texts, default=""), max(texts, default="")
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]


def _ends_of(part: Sequence[ShardRef]) -> Sequence[str]:
    return [part.prefix] if isinstance(part, ShardTable) else [shard.url for shard in part]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
