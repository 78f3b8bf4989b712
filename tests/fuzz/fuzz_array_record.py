"""Fuzz the reader of ArrayRecord files: hostile files give records or a typed error, in bounded memory.

The hashes of a chunk protect everything in it from mutations. Therefore the target writes the hashes that fit: the
mutated bytes are the parts of a file, from which it makes the file.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_array_record.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_array_record.py --runs 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzzing import Target, run_target

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from array_records import COMPRESSIONS, RiegeliFile, array_record, chunk, in_groups, message, with_header
from table_bytes import rows_of

from aiostream_data.errors import AiostreamError
from aiostream_data.formats.array_record import ArrayRecordFormat

LIMIT = 1 << 24
HEAD_NBYTES = 6
RECORDS = [b"record %d" % number * (number % 4) for number in range(9)]
HOSTILE = (b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f", b"\xff\xff\xff\x7f", b"\x28\xb5\x2f\xfd\xe0")
WHOLE, CHUNK, FOOTER = range(3)


def check(data: bytes) -> None:
    """Read a file made of ``data``. Its first bytes say what the rest is, and the numbers of records and bytes."""
    if len(data) < HEAD_NBYTES:
        return
    kind, first, records, nbytes = data[0] % 3, data[1] % 8, data[2], int.from_bytes(data[3:HEAD_NBYTES], "little")
    try:
        for record in rows_of(ArrayRecordFormat(), file_of(kind, records, nbytes, data[HEAD_NBYTES:]), first, LIMIT):
            assert type(record) is bytes
    except AiostreamError:
        pass


def file_of(kind: int, records: int, nbytes: int, content: bytes) -> bytes:
    """Return a file with this content of a chunk of records, or of the footer."""
    if kind == WHOLE:
        return content
    file = RiegeliFile()
    if kind == CHUNK:
        return file.ended([(file.add(with_header(content, "r", records, nbytes)), nbytes, records)])
    file.add(chunk(RECORDS, "zstd"))
    return file.ended_by(with_header(content, "r", records, nbytes))


def seeds() -> list[bytes]:
    """Return valid inputs of each kind."""
    found = []
    nbytes = sum(map(len, RECORDS))
    for compression in COMPRESSIONS:
        content = chunk(RECORDS, compression)[40:]
        found.append(_input(CHUNK, len(RECORDS), nbytes, content))
        described = [message(message(1, 1, len(RECORDS))), message(64, nbytes, len(RECORDS))]
        found.append(_input(FOOTER, 2, sum(map(len, described)), chunk(described, compression)[40:]))
    found.append(_input(WHOLE, 0, 0, array_record(in_groups(RECORDS, 4), "zstd")))
    return found


def _input(kind: int, records: int, nbytes: int, content: bytes) -> bytes:
    return bytes([kind, 0, records]) + nbytes.to_bytes(3, "little") + content


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes flipped, replaced by hostile numbers, repeated, dropped or cut off."""
    body = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(1, len(body)) if len(body) > 1 else 0
        change = source.randrange(8)
        if change < 4:
            body[at : at + 1] = bytes([source.randrange(256)])
        elif change < 5:
            number: Any = source.choice(HOSTILE)[: len(body) - at]
            body[at : at + len(number)] = number
        elif change == 5:
            body[at:at] = body[at : at + source.choice((1, 4, 8))]
        elif change == 6:
            del body[at : at + source.choice((1, 4, 8))]
        elif source.random() < 0.3:
            del body[at:]
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
