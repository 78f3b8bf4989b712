"""Group the members of a tar archive into samples, and find samples that are broken.

A sample is a run of consecutive members with the same key. A sample is complete when the first header of another key,
or the end of the archive, has been read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.tar_py import (
    BAD_CHECKSUM,
    BAD_EXTENDED,
    BAD_GLOBAL,
    BAD_SIZE,
    DEVICE,
    END,
    EXT_HASH,
    EXT_NBYTES,
    FIRST,
    KEY_HASH,
    KEY_NBYTES,
    KIND,
    LINK,
    LONE_EXTENDED,
    MORE,
    NAME,
    OTHER,
    SOUND,
    SPARSE,
    TarWalk,
    name_hash,
)

Numbers = NDArray[np.int64]

KEY: Final = "__key__"
"""Field of a sample that contains its key."""

_HASH_OF_KEY: Final = name_hash(KEY.encode())
_RESERVED: Final = "the field with the key of the sample; give it another extension"

_KINDS: Final = {
    LINK: "is a link; store the file itself, as 'tar --dereference --hard-dereference' does",
    DEVICE: "is a device or a pipe; remove it from the archive",
    SPARSE: "is a sparse file; write the archive again without 'tar --sparse'",
    OTHER: "has an unknown type; write the archive again with files only",
}
_FAULTS: Final = {
    BAD_CHECKSUM: "no valid tar header",
    BAD_SIZE: "a tar header has an invalid size",
    BAD_EXTENDED: "an extended tar header is malformed or too large",
    BAD_GLOBAL: "a global PAX header sets the path or the size of all members",
    LONE_EXTENDED: "the archive ends after an extended header",
}


class BrokenSample(NamedTuple):
    """A broken sample: its number in the walk, and what is wrong with it."""

    sample: int
    problem: str


class Samples(NamedTuple):
    """Samples of one range of an archive.

    Attributes:
        edges: Start of each sample, and the end of the last one.
        complete: Number of complete samples. Only the last sample can be incomplete.
        first_rows: Row of the first member of each sample, in the table of the walk.
        fault: The first broken sample; None if all samples are sound so far.
    """

    edges: Numbers
    complete: int
    first_rows: Numbers
    fault: BrokenSample | None


def samples_of(walk: TarWalk, start: int, base: int, most_nbytes: int, is_end: bool = False) -> Samples:
    """Group the members of a walk that began at index ``start``.

    Members without a key belong to the sample before them, or to the first sample.

    Args:
        base: Byte offset in the stream of index 0.
        most_nbytes: Maximum size of a sample in bytes.
        is_end: True if the stream ends after the last member.
    """
    table = walk.table
    keyed = np.flatnonzero(table[:, KEY_NBYTES] >= 0)
    hashes = table[keyed, KEY_HASH]
    is_first = np.ones(len(keyed), np.bool_)
    is_first[1:] = hashes[1:] != hashes[:-1]
    first_rows = keyed[is_first]
    edges = np.append(table[first_rows, FIRST], walk.at)
    edges[0] = start
    is_over = walk.verdict == END or (is_end and walk.verdict == MORE)
    faults = [
        _refused(table, walk.names, first_rows, base),
        _repeated(table, walk.names, keyed, is_first, base),
        _reserved(table, walk.names, keyed, is_first, base),
        _too_large(edges, most_nbytes),
    ]
    if walk.verdict not in (MORE, END):
        problem = f"{_FAULTS[walk.verdict]} at byte {base + walk.fault_at}; write the archive again"
        faults.append(BrokenSample(max(0, len(first_rows) - 1), problem))
    fault = min((one for one in faults if one is not None), default=None)
    complete = len(first_rows) if is_over else max(0, len(first_rows) - 1)
    return Samples(edges, complete if fault is None else min(complete, fault.sample), first_rows, fault)


def name_of(walk: TarWalk, row: int) -> str:
    """Return the name of a member for messages."""
    start, key, ext = (int(number) for number in walk.table[row, [NAME, KEY_NBYTES, EXT_NBYTES]])
    if key < 0:
        return "without a key"
    return repr(walk.names[start : start + key + 1 + ext].tobytes().decode("utf-8", "backslashreplace"))


def key_of(walk: TarWalk, row: int) -> str:
    """Return the key of a member for messages."""
    start, key = (int(number) for number in walk.table[row, [NAME, KEY_NBYTES]])
    return repr(walk.names[start : start + key].tobytes().decode("utf-8", "backslashreplace"))


def _refused(table: Numbers, names: NDArray[np.uint8], first_rows: Numbers, base: int) -> BrokenSample | None:
    """Find the first member that is no ordinary file."""
    bad = np.flatnonzero(table[:, KIND] != SOUND)
    if not len(bad):
        return None
    row = int(bad[0])
    walk = TarWalk(table, names, 0, 0, 0, 0)
    what = f"member {name_of(walk, row)} at byte {base + int(table[row, FIRST])} {_KINDS[int(table[row, KIND])]}"
    return BrokenSample(max(0, int(np.searchsorted(first_rows, row, side="right")) - 1), what)


def _repeated(
    table: Numbers, names: NDArray[np.uint8], keyed: Numbers, is_first: NDArray[np.bool_], base: int
) -> BrokenSample | None:
    """Find the first sample that has an extension twice."""
    if is_first.all():
        return None
    sample = np.cumsum(is_first) - 1
    hashes = table[keyed, EXT_HASH]
    order = np.lexsort((hashes, sample))
    is_again = (sample[order][1:] == sample[order][:-1]) & (hashes[order][1:] == hashes[order][:-1])
    if not is_again.any():
        return None
    place = int(np.flatnonzero(is_again)[np.argmin(order[1:][is_again])])
    first, again = int(keyed[order[place]]), int(keyed[order[place + 1]])
    return BrokenSample(int(sample[order[place]]), repeated_extension(table, names, first, again, base))


def repeated_extension(table: Numbers, names: NDArray[np.uint8], first: int, again: int, base: int) -> str:
    """Describe a sample in which the members of two rows have the same extension."""
    at, then = (base + int(table[row, FIRST]) for row in (first, again))
    return again_in_sample(name_of(TarWalk(table, names, 0, 0, 0, 0), again), at, then)


def again_in_sample(name: str, first: int, again: int) -> str:
    """Describe a sample with the same extension twice."""
    return f"member {name} occurs twice in one sample, at byte {first} and at byte {again}; give each its own extension"


def again_in_shard(key: str, first: int, again: int) -> str:
    """Describe a key that occurs again after other samples."""
    cure = "write all members of a sample one after the other, as 'tar --sort=name' does"
    return f"key {key} was used at byte {first} and is used again at byte {again}, after other samples; {cure}"


def too_large(most_nbytes: int) -> str:
    """Describe a sample that exceeds the limit."""
    return f"a sample is larger than the limit of {most_nbytes} bytes; pass a larger max_sample_nbytes if it is sound"


def _reserved(
    table: Numbers, names: NDArray[np.uint8], keyed: Numbers, is_first: NDArray[np.bool_], base: int
) -> BrokenSample | None:
    """Find the first sample with a member whose extension is the name of the field of the key."""
    found = np.flatnonzero(table[keyed, EXT_HASH] == _HASH_OF_KEY)
    if not len(found):
        return None
    row, sample = int(keyed[found[0]]), int(np.count_nonzero(is_first[: found[0] + 1])) - 1
    name = name_of(TarWalk(table, names, 0, 0, 0, 0), row)
    at = base + int(table[row, FIRST])
    return BrokenSample(sample, f"member {name} at byte {at} has the extension {KEY!r}, which is {_RESERVED}")


def _too_large(edges: Numbers, most_nbytes: int) -> BrokenSample | None:
    large = np.flatnonzero(np.diff(edges) > most_nbytes)
    return BrokenSample(int(large[0]), too_large(most_nbytes)) if len(large) else None


class SeenKeys:
    """Keys of the samples that were cut from one shard, to find a sample whose members are not consecutive.

    Memory is bounded: only the last ``MOST_KEYS`` to ``2 * MOST_KEYS`` keys are kept, as hashes of 64 bits.
    """

    MOST_KEYS: Final = 1 << 16

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._earlier: dict[int, int] = {}

    def add(self, key_hash: int, offset: int) -> int | None:
        """Add the key of the sample at ``offset``. If it was used before, return the offset of that sample."""
        known = self._recent.get(key_hash, self._earlier.get(key_hash))
        if known is not None:
            return known if known != offset else None
        if len(self._recent) == self.MOST_KEYS:
            self._earlier, self._recent = self._recent, {}
        self._recent[key_hash] = offset
        return None


def first_repeat(samples: Samples, walk: TarWalk, seen: SeenKeys, base: int) -> BrokenSample | None:
    """Add the keys of all complete samples, and return the first sample whose key was used before."""
    rows = samples.first_rows[: samples.complete]
    offsets = (base + samples.edges[: samples.complete]).tolist()
    for number, (key_hash, offset) in enumerate(zip(walk.table[rows, KEY_HASH].tolist(), offsets, strict=True)):
        earlier = seen.add(key_hash, offset)
        if earlier is not None:
            return BrokenSample(number, again_in_shard(key_of(walk, int(rows[number])), earlier, offset))
    return None
