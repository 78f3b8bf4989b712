"""Fuzz the reader of HDF5 files: hostile files give the rows that h5py reads, or a typed error.

Most mutations change single fields of the metadata. Checksums are repaired, because few files would be read otherwise.
The HDF5 library crashes on some hostile files, which ends this program; see ``docs/hdf5.md``.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_hdf5.py corpus/ -fork=1 -ignore_crashes=1

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_hdf5.py --runs 100000 --seed 1
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from fuzzing import Target, run_target

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from hdf5_bytes import checksums_of, repaired, with_changed_metadata
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data.errors import AiostreamError
from aiostream_data.formats.hdf5 import Hdf5Format

HEAD_NBYTES = 3
"""Bytes in front of the file: its format, its first row, and the seed that it was made of."""

LIMIT = 1 << 24
MOST_ROWS = 1_000
ROWS = 12
FORMATS = (Hdf5Format(), Hdf5Format(fields=("n",)), Hdf5Format(fields=("group", "n")))


def check(data: bytes) -> None:
    """Read ``data`` in one of several formats. Its first bytes choose the format and the first row."""
    if len(data) < HEAD_NBYTES:
        return
    format, first, file = FORMATS[data[0] % len(FORMATS)], data[1] % 4, data[HEAD_NBYTES:]
    try:
        found = plain_rows(islice(rows_of(format, file, first, LIMIT), MOST_ROWS))
        if first == 0 and 0 < len(found) < MOST_ROWS:
            _check_rows(found, file, list(directory_of(format, file).types))
    except AiostreamError:
        pass


def _check_rows(found: list[Any], file: bytes, names: list[str]) -> None:
    """Compare the numbers in all rows with those that h5py reads from the whole file.

    If the place of a chunk in an index is damaged, h5py may not find the chunk, and delivers fill values instead, which
    are 0 in all valid files.
    """
    for name in names:
        expected = _numbers(file, name.replace(".", "/"))
        if expected is not None:
            rows: Any = found
            for part in name.split("."):
                rows = [row[part] for row in rows]
            np.testing.assert_array_equal(np.where(expected == 0, 0, np.array(rows)), expected)


def _numbers(file: bytes, name: str) -> Any:
    """Return the values of a dataset of numbers; None if h5py cannot read it."""
    try:
        with h5py.File(io.BytesIO(file), "r") as root:
            values = root[name]
            return values[()] if values.dtype.kind in "biuf" else None
    except Exception:
        return None


def seeds() -> list[bytes]:
    """Return valid files, with the bytes in front that select the format."""
    return [bytes([number % len(FORMATS), 0, number]) + data for number, data in enumerate(_files())]


@cache
def _files() -> tuple[bytes, ...]:
    found = []
    for version in ("earliest", "latest"):
        found += [_file(write, version) for write in (_plain, _chunked, _text, _deep, _growing, _compressed)]
    return (*found, _file(_compressed, "earliest", block=512))


@cache
def _checksums() -> tuple[dict[int, int], ...]:
    return tuple(map(checksums_of, _files()))


def _file(write: Callable[[Any], object], version: str, block: int = 0) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w", libver=version, userblock_size=block) as file:
        file["n"] = np.arange(ROWS)
        file.create_group("group")
        write(file)
    return made.getvalue()


def _plain(file: Any) -> None:
    kinds = [("n", "<i2"), ("b", "S4"), ("p", ">f8", (2,))]
    file["group/records"] = np.array([(n, b"b%d" % n, [n, -n]) for n in range(ROWS)], kinds)
    file["group/flag"] = np.arange(ROWS) % 2 == 0
    file["fixed"] = np.array([b"%d" % n for n in range(ROWS)])


def _chunked(file: Any) -> None:
    matrix = np.arange(3.0 * ROWS).reshape(ROWS, 3)
    file.create_dataset("group/m", data=matrix, chunks=(5, 2), compression="gzip", shuffle=True, fletcher32=True)
    file.create_dataset("few", data=matrix, chunks=(ROWS, 3), compression="lzf")


def _text(file: Any) -> None:
    file["group/t"] = [f"naïve {n}" for n in range(ROWS)]
    file.create_dataset("u", data=[f"{n}" for n in range(ROWS)], dtype=h5py.string_dtype(), chunks=(5,))


def _deep(file: Any) -> None:
    for name in ("group/a/b/c", "group/a/d", "e/f"):
        file[name] = np.arange(ROWS, dtype=np.uint8)
    file["n"].attrs["unit"] = "m"


def _growing(file: Any) -> None:
    for number, axes in enumerate(((None,), (None, None), (None, 4))):
        values = np.zeros((ROWS, 4)[: len(axes)], np.int16)
        file.create_dataset(f"group/g{number}", data=values, maxshape=axes, chunks=(3, 2)[: len(axes)])


def _compressed(file: Any) -> None:
    matrix = np.arange(4 * ROWS, dtype=np.int16).reshape(ROWS, 4)
    file.create_dataset("group/z", data=matrix, chunks=(5, 3), compression="gzip", shuffle=True)
    file.create_dataset("y", data=matrix > 9, chunks=(7, 4), compression="gzip", maxshape=(None, 4))


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few fields of its metadata changed, or a few bytes."""
    head, file = bytearray(data[:HEAD_NBYTES].ljust(HEAD_NBYTES, b"\0")), data[HEAD_NBYTES:]
    checksums = _checksums()[head[2] % len(_files())]
    if source.random() < 0.1:
        head[source.randrange(2)] = source.randrange(256)
    for _ in range(source.randint(1, 3)):
        if source.random() < 0.8:
            file = with_changed_metadata(file, checksums, source)
        else:
            file = repaired(_with_changed_bytes(file, source), checksums)
    return bytes(head) + file


def _with_changed_bytes(file: bytes, source: random.Random) -> bytes:
    at = source.randrange(max(1, len(file)))
    size = source.choice((1, 1, 1, 4, 8))
    if source.random() < 0.05:
        return file[:at]
    new = source.choice((b"\xff" * size, bytes(size), source.randbytes(size)))[: len(file) - at]
    return file[:at] + new + file[at + len(new) :]


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
