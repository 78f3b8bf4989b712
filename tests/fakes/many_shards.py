"""Small shards of every file source, with content that says where it comes from, and ways to damage one of them."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from aiostream_data import Dataset
from aiostream_data.formats.tfrecord_writer import frame

RECORD_NBYTES = 16
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zlib": zlib.compress,
    "zstd": zstandard.compress,
}
SUFFIXES = {"": "", "gzip": ".gz", "zlib": ".zz", "zstd": ".zst"}
_COMPRESSION_OF = {suffix: compression for compression, suffix in SUFFIXES.items()}


def record(number: int, row: int) -> bytes:
    return f"shard {number:04} {row:02} ".encode().ljust(RECORD_NBYTES - 1, b".")


def _rows(number: int) -> range:
    return range(1 + number % 4)


def _archive(members: dict[str, bytes]) -> bytes:
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return file.getvalue()


CONTENT: dict[str, Callable[[int], bytes]] = {
    "from_tfrecord": lambda number: b"".join(frame(record(number, row)) for row in _rows(number)),
    "from_text": lambda number: b"".join(record(number, row) + b"\n" for row in _rows(number)),
    "from_fixed_length": lambda number: b"".join(record(number, row) + b"." for row in _rows(number)),
    "from_csv": lambda number: b"".join(record(number, row) + b"\n" for row in _rows(number)),
    "from_webdataset": lambda number: _archive({f"{row}.txt": record(number, row) for row in _rows(number)}),
    "from_files": lambda number: b"".join(record(number, row) for row in _rows(number)),
}
"""Content of a shard by the name of its source."""


def source(name: str, files: Any, compression: str, **options: Any) -> Dataset[Any]:
    """Return the data set of a source. Compression is detected where this is the default."""
    if name == "from_fixed_length":
        return Dataset.from_fixed_length(files, RECORD_NBYTES, compression=compression, **options)
    if name == "from_files":
        options.pop("block_length", None)
        options.pop("cycle_length", None)
        return Dataset.from_files(files, compression=compression, **options)
    if name == "from_csv":
        return Dataset.from_csv(files, {"record": str}, header=False, **options)
    return getattr(Dataset, name)(files, **options)  # type: ignore[no-any-return]


def write_shards(folder: Path, name: str, compression: str, count: int) -> list[Path]:
    """Write the shards of a source. Return their paths, in order."""
    paths = [folder / f"{number:04}.data{SUFFIXES[compression]}" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(COMPRESS[compression](CONTENT[name](number)))
    return paths


# -- damage that a listing does not show


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def corrupt_start(path: Path) -> None:
    path.write_bytes(b"\xff\xff" + path.read_bytes()[2:])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"garbage \xff\xfe")


def compress_again(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def decompress(path: Path) -> None:
    if path.suffix == ".zst":
        path.write_bytes(zstandard.decompress(path.read_bytes()))
    elif path.suffix in (".gz", ".zz"):
        path.write_bytes(zlib.decompress(path.read_bytes(), 47))  # 47 detects gzip and zlib


def make_endless(path: Path) -> None:
    """Let an object decompress to a thousand times its size."""
    path.write_bytes(COMPRESS[_COMPRESSION_OF.get(path.suffix, "gzip")](bytes(100_000)))


def claim_terabytes(path: Path) -> None:
    path.write_bytes((1 << 40).to_bytes(8, "little") + path.read_bytes()[8:])


def replace_by_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")


def write_members(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2 + bytes(7))


DAMAGE: list[Callable[[Path], None]] = [
    truncate,
    corrupt,
    corrupt_start,
    empty,
    append_garbage,
    compress_again,
    decompress,
    make_endless,
    claim_terabytes,
    replace_by_parquet,
    write_members,
]

# -- changes after the listing


def remove(path: Path) -> None:
    path.unlink()


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(path.read_bytes())


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def replace_by_equal_size(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[::-1])
    os.utime(path, ns=(1, 1))


CHANGES: list[Callable[[Path], None]] = [
    remove,
    grow,
    truncate,
    empty,
    replace_by_pipe,
    replace_by_folder,
    replace_by_device,
    replace_by_loop,
    replace_by_equal_size,
]
