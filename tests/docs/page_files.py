"""The files that programs on pages read, written from the patterns on those pages."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import mds_files
import numpy as np
import tfds_files
from array_records import array_record, in_groups
from hub_server import Hub
from PIL import Image

import aiostream_data as asd
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.testing.servers import ObjectServer

FOLDERS: Final = ("cat", "dog")
"""What a ``*`` in the name of a folder stands for: as in a folder of images, whose folders are their labels."""
FILES: Final = ("00000", "00001", "00002", "00003")
"""What a ``*`` in the name of a file stands for."""
LINES: Final = 3_000
RECORDS: Final = 100


def write_files(pattern: str, folder: Path, servers: Callable[[str], ObjectServer | Hub]) -> None:
    """Write files that match a pattern, below ``folder`` or into the server of the URL's scheme."""
    scheme, _, path = pattern.rpartition("://")
    for name in matching(path):
        if scheme:
            server = servers(scheme)
            server.create_bucket(name.partition("/")[0])
            server.put(f"{scheme}://{name}", content(name))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content(name))


def matching(pattern: str) -> Iterator[str]:
    """Yield names that match a pattern with at most one ``*`` in each of its parts."""
    parts = pattern.split("/")
    if pattern.endswith("/tfds/*"):
        yield from (pattern[:-1] + name for name in tfds_folder())
        return
    stars = [FOLDERS if "*" in part else ("",) for part in parts[:-1]] + [FILES if "*" in parts[-1] else ("",)]
    for chosen in product(*stars):
        yield "/".join(part.replace("*", star) for part, star in zip(parts, chosen, strict=True))


def content(name: str) -> bytes:
    """Return what a file of this name holds; it follows from the name alone."""
    if "/tfds/" in name:
        return tfds_folder()[Path(name).name]
    if name.endswith(".gz"):
        return gzip.compress(content(name.removesuffix(".gz")), mtime=0)
    makers: dict[str, Callable[[str], bytes]] = {
        ".txt": text,
        ".csv": people,
        ".jsonl": captions,
        ".tfrecord": records,
        ".jpg": photo,
        ".db": labels,
        ".tar": samples,
        ".mds": mds_shard,
        ".array_record": lambda name: array_record(in_groups(captions(name).splitlines(), 4)),
        ".json": mds_index,
    }
    return makers[Path(name).suffix](name)


def text(name: str) -> bytes:
    return "".join(f"line {number} of {name}\n" for number in range(LINES)).encode()


def captions(name: str) -> bytes:
    """Return records of captions with boxes; every file begins with id 0."""
    records = [
        {"id": number, "text": f"caption {number}", "box": {"x": 1.5, "y": number % 4}, "scores": [0.5] * (number % 3)}
        for number in range(RECORDS)
    ]
    return "\n".join(map(json.dumps, records)).encode()


def people(name: str) -> bytes:
    """Return rows of people; every file begins with id 0."""
    rows = [f'{number},"person {number}, ""the first""",{1.5 + number % 4 / 8}' for number in range(RECORDS)]
    return "\n".join(["id,name,height", *rows]).encode()


@cache
def records(name: str) -> bytes:
    examples = [
        {"name": str(number), "label": number % 2, "image": image(32, 32, number % 2)} for number in range(RECORDS)
    ]
    return b"".join(frame(asd.encode_example(example)) for example in examples)


@cache
def samples(name: str) -> bytes:
    """Return a WebDataset shard whose keys begin with the number of the file."""
    number = Path(name).stem.rpartition("-")[2]
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for row in range(RECORDS):
            fields = {"jpg": image(32, 32, row % 2), "cls": b"%d" % (row % 2), "json": b'{"number": %d}' % row}
            for extension, data in fields.items():
                info = tarfile.TarInfo(f"{number}/{row:04}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


MDS_COLUMNS: Final = {"id": "int", "text": "str"}


@cache
def mds_shard(name: str) -> bytes:
    """Return an MDS shard with a number and a text in each sample."""
    encoded = [(number, f"text {number}".encode()) for number in range(RECORDS)]
    rows = [len(text).to_bytes(4, "little") + number.to_bytes(8, "little") + text for number, text in encoded]
    return mds_files.shard(rows, mds_files.described(MDS_COLUMNS))


def mds_index(name: str) -> bytes:
    files = {file: mds_shard(file) for file in ("shard.00000.mds", "shard.00001.mds")}
    return json.dumps(mds_files.index(files, mds_files.described(MDS_COLUMNS))).encode()


@cache
def tfds_folder() -> dict[str, bytes]:
    """Return the files of a folder with two shards of examples, as TensorFlow Datasets prepares it."""
    shards = [[tfds_files.record(RECORDS * shard + row) for row in range(RECORDS)] for shard in range(2)]
    return tfds_files.files({"train": shards}) | {"label.labels.txt": b"cat\ndog\nowl\n"}


def photo(name: str) -> bytes:
    """Return an image whose size depends on the name of its file, and whose colour on that of its folder."""
    *_, folder, file = Path(name).parts
    size = 40 + 8 * FILES.index(Path(file).stem) if Path(file).stem in FILES else 40
    return image(size, 48, FOLDERS.index(folder) if folder in FOLDERS else 0)


@cache
def image(width: int, height: int, label: int) -> bytes:
    pixels = np.full((height, width, 3), 60 + 120 * label, np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(pixels).save(jpeg, "JPEG")
    return jpeg.getvalue()


@cache
def labels(name: str) -> bytes:
    """Return a database of the labels of the records above."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table labels (name blob, label integer)")
        rows = [(str(number).encode(), number % 2) for number in range(RECORDS)]
        connection.executemany("insert into labels values (?, ?)", rows)
        connection.commit()
        return connection.serialize()
