"""Shards on disk that a drawn plan reads, and that change between two runs. Every record is unique."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from metamorphic.drawing import one_of

import aiostream_data as asd

RECORD_NBYTES: Final = 16

SUFFIXES: Final = (".txt", ".txt", ".tfrecord", ".bin", ".txt.gz", ".one")
"""Text, TFRecords, records of one length, compressed text, and files that are one row each."""

ADDED: Final = {"append": "z", "insert": "m1x", "front": "a"}
"""How shards are added, and how their names begin; those that were there are ``m0``, ``m1`` and so on."""


@dataclass
class Folder:
    """The shards of one source.

    Attributes:
        shards: Records of each shard by its name.
        versions: Number of its content.
    """

    path: Path
    suffix: str
    shards: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    _written: int = 0

    @classmethod
    def drawn(cls, random: Random, path: Path) -> Folder:
        """Return a folder with a few shards."""
        folder = cls(path, one_of(random, *SUFFIXES))
        path.mkdir()
        for number in range(random.randint(1, 7)):
            folder.put(f"m{number}", one_of(random, 0, 1, 2, 4, 7, 12))
        return folder

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def pattern(self) -> str:
        return f"{self.path}/*{self.suffix}"

    def put(self, name: str, rows: int) -> None:
        """Write a new shard, or other content of one."""
        version = self.versions[name] = self.versions.get(name, -1) + 1
        count = 1 if self.suffix == ".one" else rows
        self.shards[name] = [f"{self.name}{name}.{version}:{row}" for row in range(count)]
        path = self.path / f"{name}{self.suffix}"
        _write(path, self.suffix, self.shards[name])
        self._written += 1
        os.utime(path, (self._written, self._written))  # another version, whatever the clock's steps are

    def remove(self, name: str) -> None:
        """Remove a shard."""
        del self.shards[name]
        (self.path / f"{name}{self.suffix}").unlink()

    def change(self, random: Random) -> list[str]:
        """Change something, and return what: "append", "insert", "front", "remove", "replace", one or several."""
        kind = one_of(random, "append", "append", "insert", "front", "remove", "replace", "rename", "several")
        kinds = {"rename": ["remove", "insert"], "several": random.sample(["append", "insert", "remove", "replace"], 2)}
        done = []
        for each in kinds.get(kind, [kind]):
            if each in ADDED:
                self.put(f"{ADDED[each]}{random.randrange(10**6):06}", one_of(random, 0, 1, 2, 5, 9))
            elif each == "replace":
                self.put(random.choice(sorted(self.shards)), one_of(random, 1, 3, 8))
            elif len(self.shards) > 1:
                self.remove(random.choice(sorted(self.shards)))
            else:
                continue
            done.append(each)
        return done


def _write(path: Path, suffix: str, rows: Sequence[str]) -> None:
    lines = "".join(f"{row}\n" for row in rows).encode()
    if suffix == ".tfrecord":
        with asd.TFRecordWriter(path) as writer:
            for row in rows:
                writer.write(row.encode())
    elif suffix == ".bin":
        path.write_bytes(b"".join(row.encode().ljust(RECORD_NBYTES) for row in rows))
    elif suffix == ".txt.gz":
        path.write_bytes(gzip.compress(lines))
    elif suffix == ".one":
        path.write_bytes(rows[0].encode())
    else:
        path.write_bytes(lines)
