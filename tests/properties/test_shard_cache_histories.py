"""Whatever is done to a cache folder, in whatever order, and whoever is killed: reads give the bytes of the object.

Each process is a folder object of its own here; a process that is killed is one whose system calls fail from some
point on, the last write half done, and which is then never heard of again. One process does all of its work between
two system calls of another one.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from aiostream_data.storage.cache import folder, room, tree
from aiostream_data.storage.cache.counters import CacheCounters
from aiostream_data.storage.cache.folder import PieceFolder
from aiostream_data.storage.cache.owners import this_host
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import ByteSpan

PIECE = 4000
NBYTES = 5 * PIECE
KEYS = [letter * 40 for letter in "abc"]
CONTENT = {key: random.Random(key).randbytes(NBYTES) for key in KEYS}
LIMIT = 5 * disk_nbytes(ByteSpan(0, PIECE))
CHANGING = {"write", "rename", "unlink", "mkdir", "rmdir", "utime"}


class Killed(BaseException):
    """The process is gone."""


class Calls:
    """The os module, which does something else at a call of a given number.

    Attributes:
        left: Calls until then; None for never.
        then: What is done.
        is_dead: Every call that changes something fails.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.then: Callable[[], None] = lambda: None
        self.is_dead = False

    def at(self, calls: int, then: Callable[[], None]) -> None:
        self.left, self.then = calls, then

    def kill(self) -> None:
        self.is_dead = True

    def __getattr__(self, name: str) -> Any:
        value = getattr(os, name)
        if not callable(value) or name == "close":  # a killed process's files are closed as well
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    self.left = None
                    self.then()
            if self.is_dead and (name in CHANGING or (name == "open" and args[1] & os.O_CREAT)):
                if name == "write":
                    os.write(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise Killed
            return value(*args, **kwargs)

        return call


@dataclass
class World:
    """A folder, and the processes that use it."""

    path: Path
    calls: Calls = field(default_factory=Calls)
    alive: set[str] = field(default_factory=set)
    processes: list[PieceFolder] = field(default_factory=list)
    begun: int = 0

    def owner(self) -> str:
        self.begun += 1
        name = f"{this_host()}-{self.begun}-1-{'0' * 8}"
        self.alive.add(name)
        return name

    def opened(self) -> PieceFolder:
        return PieceFolder(str(self.path), LIMIT, CacheCounters(), PIECE)

    def read(self, who: int, key: str, start: int, nbytes: int) -> None:
        """Read as a store does: what is missing is asked for elsewhere, and kept."""
        process = self.processes[who]
        wanted = ByteSpan(start, min(start + nbytes, NBYTES))
        buffer = bytearray(wanted.nbytes)
        missing = process.read(key, wanted, memoryview(buffer))
        for fetch in missing.fetches:
            buffer[fetch.start - start : fetch.stop - start] = CONTENT[key][fetch.start : fetch.stop]
        assert bytes(buffer) == CONTENT[key][wanted.start : wanted.stop]
        for gap in missing.gaps:
            process.write(key, gap, memoryview(buffer)[gap.start - start : gap.stop - start])
        self.check_limit()

    def read_between(self, calls: int, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
        self.calls.at(calls, lambda: self.read(1, *other))
        self.read(0, *one)
        self.calls.left = None

    def kill(self, calls: int, who: int, *what: Any) -> None:
        """Kill a process after so many calls of a read, and begin another one in its place."""
        process = self.processes[who]
        owner = process._tree.owner
        self.calls.at(calls, self.calls.kill)
        try:
            self.read(who, *what)
        except Killed:
            pass
        finally:
            self.calls.left, self.calls.is_dead = None, False
        process._tree.close()
        self.alive.remove(owner)
        self.processes[who] = self.opened()

    def reopen(self, who: int) -> None:
        self.processes[who].close()
        self.processes[who] = self.opened()

    def harm(self, number: int, how: str, at: int) -> None:
        """Do to one of the pieces what disks and people do."""
        pieces = sorted(piece for piece in self.path.rglob("*.piece") if piece.stat().st_size)
        if not pieces:
            return
        piece = pieces[number % len(pieces)]
        size = piece.stat().st_size
        if how == "lose":
            piece.unlink()
        elif how == "cut":
            os.truncate(piece, at % size)
        else:
            data = bytearray(piece.read_bytes())
            data[at % size] ^= 16
            piece.write_bytes(data)

    def check_limit(self) -> None:
        # Not on the way: files that come and go between two looks would count twice.
        sizes = [piece.stat().st_size for piece in self.path.rglob("*.piece")]
        assert sum(-(-size // 4096) * 4096 for size in sizes) <= LIMIT


reads = st.tuples(st.sampled_from(KEYS), st.integers(0, NBYTES - 1), st.integers(1, 3 * PIECE))
steps = st.one_of(
    st.tuples(st.just("read"), st.integers(0, 1), reads).map(lambda drawn: (drawn[0], drawn[1], *drawn[2])),
    st.tuples(st.just("read_between"), st.integers(0, 60), reads, reads),
    st.tuples(st.just("kill"), st.integers(0, 60), st.integers(0, 1), reads).map(lambda drawn: (*drawn[:3], *drawn[3])),
    st.tuples(st.just("reopen"), st.integers(0, 1)),
    st.tuples(st.just("harm"), st.integers(0, 9), st.sampled_from(["lose", "cut", "flip"]), st.integers(0, 5000)),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, min_size=1, max_size=14))
def test_any_history_gives_the_bytes_of_the_object(history: list[tuple[Any, ...]]) -> None:
    path = Path(tempfile.mkdtemp(prefix="shard-cache-"))
    world = World(path)
    (path / "mine").write_bytes(b"mine")
    try:
        with (
            mock.patch.object(tree, "os", world.calls),
            mock.patch.object(folder, "new_owner", world.owner),
            mock.patch.object(room, "is_abandoned", lambda owner, age_s, host: owner not in world.alive),
        ):
            world.processes = [world.opened(), world.opened()]
            for name, *arguments in history:
                getattr(world, name)(*arguments)
            world.reopen(0)
            world.reopen(1)
            for process in world.processes:
                process.close()
            left = {entry.name for entry in os.scandir(path) if not entry.is_dir()}
            assert left == {"mine", "aiostream_data-shard-cache.json"}
    finally:
        for process in world.processes:
            process._tree.close()
        shutil.rmtree(path)
