"""Change single fields of the metadata of HDF5 files. Checksums of the newer format are repaired."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Final

from aiostream_data.formats.hdf5_indexes import lookup3

__all__ = ["checksums_of", "repaired", "with_changed_metadata"]

_VERSION_PLACE = 8
_BLOCK = re.compile(
    rb"TREE|SNOD|HEAP|GCOL|OHDR|FRHP|FHDB|BTHD|BTLF|BTIN|FAHD|FADB|EAHD|EAIB|EADB|EASB|\x89HDF\r\n\x1a\n"
)
_MOST_BLOCK_NBYTES = 1024
NUMBERS: Final = (
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    127,
    255,
    1 << 15,
    (1 << 16) - 1,
    (1 << 31) - 1,
    (1 << 32) - 1,
    (1 << 63) - 1,
    -1,
)


def checksums_of(file: bytes) -> dict[int, int]:
    """Return the place of the checksum of each block by the start of the block. The older format has none."""
    if file[_VERSION_PLACE] < 2:
        return {}
    found = {}
    for start in _starts(file):
        most = min(len(file) - 4, start + _MOST_BLOCK_NBYTES)
        stop = next((stop for stop in range(start + 8, most) if _fits(file, start, stop)), None)
        found.update({} if stop is None else {start: stop})
    return found


def with_changed_metadata(file: bytes, checksums: Mapping[int, int], source: random.Random) -> bytes:
    """Return a file with another number in one of its blocks, or close to its start.

    Args:
        checksums: Places of the checksums to repair.
    """
    starts = _starts(file)
    if not starts:
        return file
    start = source.choice(starts)
    stop = checksums.get(start, start + 260)
    at = start + source.choice((4, 5, 6, 8, 12, 16, 24, 32, 40, 48, source.randrange(4, stop - start)))
    if start not in checksums and source.random() < 0.4:
        at = source.randrange(0, min(len(file), 4096))
    size = source.choice((1, 1, 2, 4, 8))
    if at + size > len(file):
        return file
    number = int.from_bytes(file[at : at + size], "little") + source.choice((1, -1, 8))
    number = number if source.random() < 0.3 else source.choice(NUMBERS)
    changed = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    return repaired(file[:at] + changed + file[at + size :], checksums)


def repaired(file: bytes, checksums: Mapping[int, int]) -> bytes:
    """Return a file with the checksums that fit."""
    body = bytearray(file)
    for start, stop in checksums.items():
        if stop + 4 <= len(body):
            body[stop : stop + 4] = lookup3(bytes(body[start:stop])).to_bytes(4, "little")
    return bytes(body)


def _starts(file: bytes) -> list[int]:
    return [found.start() for found in _BLOCK.finditer(file)]


def _fits(file: bytes, start: int, stop: int) -> bool:
    return lookup3(file[start:stop]) == int.from_bytes(file[stop : stop + 4], "little")
