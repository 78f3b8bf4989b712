"""Fuzz the reader of MDS shards: hostile shards and indices may only ever give samples or an error of their own.

Run it with atheris when that is installed, or as a loop of seeded random mutations::

    python tests/fuzz/fuzz_mds.py corpus/
    python tests/fuzz/fuzz_mds.py --runs 100000 --seed 1
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from fuzzing import Target, run_target

from aiostream_data.errors import MdsError
from aiostream_data.formats.mds import MdsFormat
from aiostream_data.formats.mds_columns import MdsColumn
from aiostream_data.formats.mds_index import parse_mds_index
from aiostream_data.formats.mds_samples import MdsSamples
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.testing.formats import read_blocks

LIMIT = 1 << 16
COLUMNS = tuple(
    MdsColumn(name, encoding)
    for name, encoding in {
        "a": "bytes",
        "b": "str",
        "c": "int",
        "d": "ndarray:int16:2",
        "e": "ndarray",
        "f": "json",
        "g": "pil",
        "h": "str_int",
        "i": "str_decimal",
        "j": "uint8",
        "k": "ndarray:float32",
    }.items()
)
FORMAT = MdsFormat(columns=COLUMNS, max_sample_nbytes=LIMIT)
INDEX = (Path(__file__).parent.parent / "data" / "mds" / "zstd" / "index.json").read_bytes()


def check(data: bytes) -> None:
    """Read ``data`` in blocks whose size its first byte says; fail on a difference or a foreign exception."""
    if not data:
        return
    step, stream = 3 * data[0] + 1, data[1:]
    whole = read_blocks(FORMAT, stream)
    cut = read_blocks(FORMAT, stream, [step] * (len(stream) // step), step % 50)
    assert (whole.records, str(whole.error)) == (cut.records, str(cut.error))
    for record in whole.records:
        _check_sample(record)
    _check_resumed(whole.records)
    with suppress(MdsError):
        parse_mds_index("index.json", stream)


def _check_sample(record: bytes) -> None:
    """All values of a sample decode, or raise an error that names the column."""
    column = VarColumn(np.frombuffer(record, np.uint8), np.zeros(1, np.int64), np.array([len(record)]))
    for each in COLUMNS:
        with suppress(MdsError):
            samples = MdsSamples(COLUMNS, (each.name,))
            samples.parse(records_chunk(column, RowIds.run(0, 0, 1)), lambda row: ("", row)).elements()


def _check_resumed(records: Sequence[bytes]) -> None:
    """A reader that starts at a sample finds the same samples."""
    stream = RecordStream(FORMAT, "memory://stream", "", 1)
    columns = [*stream.feed(np.frombuffer(b"".join(records), np.uint8), 0), *stream.finish()]
    assert [record for column in columns for record in column.elements()] == list(records)


def seeds() -> list[bytes]:
    """Return a valid shard and a valid index."""
    samples = []
    for row in range(3):
        values = {
            "a": bytes(row),
            "b": "é".encode() * row,
            "e": bytes([33, 4, row]) + bytes(4 * row),
            "f": b'{"x": [1]}',
            "g": struct.pack("<3I", row, 1, 1) + b"L" + bytes(row),
            "h": b"-12",
            "i": b"1.5",
            "k": bytes([8, 1, row]) + bytes(4 * row),
        }
        sizes = b"".join(struct.pack("<I", len(values[each.name])) for each in COLUMNS if each.nbytes is None)
        samples.append(sizes + b"".join(values.get(each.name, bytes(each.nbytes or 0)) for each in COLUMNS))
    described = {
        "column_names": [each.name for each in COLUMNS],
        "column_encodings": [each.encoding for each in COLUMNS],
        "column_sizes": [each.nbytes for each in COLUMNS],
    }
    header = json.dumps(described).encode()
    edges = np.cumsum([4 + 4 * (len(samples) + 1) + len(header), *map(len, samples)])
    shard = struct.pack(f"<{len(edges) + 1}I", len(samples), *edges.tolist()) + header + b"".join(samples)
    return [b"\x07" + shard, b"\x09" + INDEX]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes and numbers changed."""
    body = bytearray(data[1:])
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(body) + 1)
        change = source.randrange(5)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            place = at if source.random() < 0.5 else 4 * source.randrange(6)
            number = source.choice((0, 1, 2, 3, len(body), len(body) + 1, 0x7FFFFFFF, 0xFFFFFFFF, source.randrange(99)))
            body[place : place + 4] = struct.pack("<I", number)
        elif change == 2:
            del body[at : at + source.choice((1, 4, 30))]
        elif change == 3:
            body[at:at] = body[: source.choice((1, 4, 30))]
        else:
            body[at : at + 4] = source.randbytes(4)
    return bytes([source.randrange(256)]) + bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate, 1000), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
