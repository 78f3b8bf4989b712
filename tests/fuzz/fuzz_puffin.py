"""Fuzz the reader of deletion vectors: hostile Puffin files give rows within the data file, or a typed error.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_puffin.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_puffin.py --runs 100000 --seed 1

The checksum of a vector is repaired after most mutations of one, because few would be read otherwise.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from zlib import crc32

from fuzzing import Target, run_target
from puffin_files import puffin, vector

from aiostream_data.dataset.deletion_vectors import DamagedVectorError, rows_of_vector
from aiostream_data.dataset.iceberg_vectors import vectors_in

ROWS = 1_000_000
"""Number of rows of the data file."""


def check(data: bytes) -> None:
    """Read ``data`` as a Puffin file. If its first byte is 0, read the other bytes as one deletion vector."""
    try:
        vectors = {"": data[1:]} if data[:1] == b"\0" else vectors_in(data)
        for each in vectors.values():
            found = rows_of_vector(each, ROWS)
            assert not len(found) or (found.min() >= 0 and found.max() < 1 << 32)
    except DamagedVectorError:
        pass


def seeds() -> list[bytes]:
    """Return valid inputs of both kinds."""
    vectors = [vector([]), vector([1, 7, 70_000]), vector(range(5_000)), vector(range(0, 200_000, 3))]
    return [*(b"\0" + each for each in vectors), puffin({str(number): each for number, each in enumerate(vectors)})]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes replaced, removed or added. Most vectors have a checksum that fits."""
    body = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(1, len(body)) if len(body) > 1 else 0
        change = source.randrange(4)
        if change == 0:
            body[at : at + 1] = bytes([source.randrange(256)])
        elif change == 1:
            body[at : at + 4] = source.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "little")
        elif change == 2:
            del body[at : at + source.randint(1, 8)]
        else:
            body[at:at] = bytes(source.randrange(256) for _ in range(source.randint(1, 8)))
    if body[:1] == b"\0" and len(body) > 9 and source.random() < 0.9:
        content = bytes(body[5:-4])
        return b"\0" + len(content).to_bytes(4, "big") + content + crc32(content).to_bytes(4, "big")
    return bytes(body) or b"\0"


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
