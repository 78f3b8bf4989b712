"""Fuzz the reader of WebDataset shards: hostile archives may only ever give samples or a CorruptRecordError.

Run it with atheris when that is installed, or as a loop of seeded random mutations::

    python tests/fuzz/fuzz_webdataset.py corpus/
    python tests/fuzz/fuzz_webdataset.py --runs 100000 --seed 1

Checksums of headers are repaired after most mutations, because few would be read otherwise.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from fuzzing import Target, run_target

from aiostream_data import _native
from aiostream_data._native import BytesMemory, tar_py
from aiostream_data.codecs import decode_npy
from aiostream_data.codecs.sample_fields import FieldsDecoder, decode_text
from aiostream_data.errors import SampleDecodeError
from aiostream_data.formats import webdataset_runs
from aiostream_data.formats.record_runs import RecordRun, RunFinder, places_of
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.formats.webdataset_samples import WebDatasetSamples
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.testing.formats import read_blocks

LIMIT = 1 << 16
BLOCK = 512
DECODER = FieldsDecoder({"npy": decode_npy, "txt": decode_npy, "x": decode_text})


def check(data: bytes) -> None:
    """Read ``data`` in blocks whose size its first byte says; fail on a difference or a foreign exception."""
    if not data:
        return
    description, step, stream = (
        WebDatasetFormat(verify=bool(data[0] & 1), max_sample_nbytes=LIMIT),
        3 * data[0] + 1,
        data[1:],
    )
    whole = read_blocks(description, stream)
    cut = read_blocks(description, stream, [step] * (len(stream) // step), step % 50)
    assert whole.records == cut.records
    offsets = [None if one.error is None else one.error.offset for one in (whole, cut)]
    assert offsets[0] == offsets[1]
    values = np.frombuffer(stream, np.uint8)
    ranges = np.array([0]), np.array([len(stream)])
    native, twin = _native.walk_tar(values, *ranges), tar_py.walk_tar(values, *ranges)
    assert native.table.tolist() == twin.table.tolist()
    assert (native.names.tobytes(), native[2:]) == (twin.names.tobytes(), twin[2:])
    assert _native.find_tar_header(values, 0, len(values)) == tar_py.find_tar_header(values, 0, len(values))
    _check_samples(whole.records)
    _check_file(stream, whole.records)


def _samples_of(records: list[bytes]) -> list[Any]:
    lengths = np.array([len(record) for record in records], np.int64)
    column = VarColumn(np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths, lengths)
    samples = WebDatasetSamples().parse(records_chunk(column, RowIds.run(0, 0, len(records))), lambda row: ("", row))
    return list(samples.elements())


def _check_file(stream: bytes, records: list[bytes]) -> None:
    """The samples that are found in a file are the first samples of the stream."""
    finder = WebDatasetFormat(max_sample_nbytes=LIMIT).run_finder("", WebDatasetSamples())
    assert finder is not None
    file = os.memfd_create("archive")
    try:
        os.write(file, stream)
        for most in (1, 3, 100):
            native, twin = (walk(file, 0, len(stream), most) for walk in (_native.walk_tar_file, tar_py.walk_tar_file))
            assert native.table.tolist() == twin.table.tolist()
            assert (native.names.tobytes(), native[2:]) == (twin.names.tobytes(), twin[2:])
        row = 0
        for run in _found(finder, file, len(stream)):
            memory = [BytesMemory(nbytes) for nbytes in run.values[:, 1].tolist()]
            others = np.empty(run.other_nbytes, np.uint8)
            places = places_of(run, [each.view() for each in memory], others.data)
            assert os.preadv(file, places, run.start) == run.nbytes
            chunk = Columns(
                run.structure, run.columns([each.data() for each in memory], others), RowIds.run(0, 0, run.rows)
            )
            assert chunk.elements() == _samples_of(records[row : row + run.rows])
            row += run.rows
    finally:
        os.close(file)


def _found(finder: RunFinder, file: int, nbytes: int) -> list[RecordRun]:
    with patch.object(webdataset_runs, "OBJECT_NBYTES", 1):  # the archives are small
        return finder.find(file, 0, nbytes, [700, 3_000])


def _check_samples(records: list[bytes]) -> None:
    """Every record holds one sample, whose fields decode or raise ValueError."""
    for sample in _samples_of(records):
        assert isinstance(sample["__key__"], str)
        assert len(sample) > 1
        with suppress(SampleDecodeError):
            DECODER(sample)


def seeds() -> list[bytes]:
    """Return one valid archive per format of tar."""
    found = []
    formats: tuple[Literal[0, 1, 2], ...] = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    for number, format in enumerate(formats):
        file = io.BytesIO()
        array = io.BytesIO()
        np.save(array, np.arange(number))
        with tarfile.open(fileobj=file, mode="w", format=format) as archive:
            for name in ("a/1.txt", "a/1.npy", f"{'d' * 90}/{'e' * 60}.x", "b.x", "b.y"):
                info = tarfile.TarInfo(name)
                info.size = len(array.getvalue())
                archive.addfile(info, io.BytesIO(array.getvalue()))
        stream = file.getvalue().rstrip(b"\0")
        found.append(bytes([number]) + stream + bytes(-len(stream) % BLOCK + 2 * BLOCK))
    return found


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return an archive with a few bytes changed and blocks moved, and mostly with valid checksums."""
    body = bytearray(data[1:])
    for _ in range(source.randint(1, 4)):
        block = BLOCK * source.randrange(len(body) // BLOCK + 1)
        at = min(len(body), block + source.choice((0, 100, 124, 136, 156, 257, 345, source.randrange(BLOCK))))
        change = source.randrange(5)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            body[at : at + source.choice((1, 4, 12))] = source.randbytes(source.choice((1, 4, 12)))
        elif change == 2:
            body[at : at + 1] = source.choice((b"0", b"5", b"L", b"x", b"g", b"K", b"S", b"\x80", b"7", b"/", b"."))
        elif change == 3:
            del body[block : block + BLOCK * source.randint(0, 2)]
        else:
            body[block:block] = body[: BLOCK * source.randint(0, 4)]
    if source.random() < 0.8:
        _repair(body)
    return bytes([source.randrange(256)]) + bytes(body)


def _repair(body: bytearray) -> None:
    """Write the checksum into every block that looks like a header."""
    for at in range(0, len(body) - BLOCK + 1, BLOCK):
        header = body[at : at + BLOCK]
        if header[257:262] == b"ustar":
            total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
            body[at + 148 : at + 156] = b"%06o\0 " % total


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
