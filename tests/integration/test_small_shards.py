"""Small shards are read in groups: faster, and otherwise as if each were read alone."""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from many_shards import remove, replace_by_device, replace_by_folder, replace_by_pipe

from aiostream_data import Dataset, VarLen, _native
from aiostream_data._engine.sources import group_limits
from aiostream_data.errors import CorruptRecordError, DataError, ObjectChangedError, ObjectNotFoundError, StorageError
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.faults import Fault, Rule

SHARDS = 300
BAD = 137
"""Number of the shard with a problem."""


pytestmark = pytest.mark.chooses_groups


def content_of(number: int) -> bytes:
    return b"".join(frame(b"%d/%d" % (number, record)) for record in range(number % 4))


def rows_of(numbers: Any) -> list[bytes]:
    return [b"%d/%d" % (number, record) for number in numbers for record in range(number % 4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(SHARDS):
        path_of(tmp_path, number).write_bytes(content_of(number))
    return tmp_path


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:03}.tfrecord"


def records(folder: Path, **options: Any) -> Dataset[bytes]:
    return Dataset.from_tfrecord(f"{folder}/*.tfrecord", **options)


def read_until_error(dataset: Dataset[Any], before_first_read: Callable[[], None] = lambda: None) -> Any:
    """Return the rows of a data set and the error that ends them."""
    rows: list[Any] = []
    with dataset.open() as loader:
        before_first_read()
        try:
            rows.extend(loader)
        except Exception as error:
            return rows, error
    return rows, None


# -- one bad shard among good ones


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[14] ^= 1
    path.write_bytes(data)


def make_endless(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 1 << 40) + path.read_bytes()[8:])


DAMAGE = [truncate, corrupt, make_endless]


@pytest.mark.parametrize("cycle_length", [1, 8])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_fails_in_its_turn(folder: Path, damage: Callable[[Path], None], cycle_length: int) -> None:
    damage(path_of(folder, BAD))
    with_groups = read_until_error(records(folder, cycle_length=cycle_length))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_limits, "GROUP_NBYTES", 0)
        alone = read_until_error(records(folder, cycle_length=cycle_length))
    assert with_groups[0] == alone[0]
    assert str(with_groups[1]) == str(alone[1])
    assert isinstance(with_groups[1], CorruptRecordError)
    assert str(path_of(folder, BAD)) in str(with_groups[1])


@pytest.mark.parametrize("damage", DAMAGE)
def test_only_the_damaged_shard_is_skipped(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(path_of(folder, BAD))
    rows, error = read_until_error(records(folder, on_error="skip"))
    assert error is None
    good = rows_of(number for number in range(SHARDS) if number != BAD)
    assert [row for row in rows if not row.startswith(b"%d/" % BAD)] == good


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(frame(b"more"))


CHANGES: list[tuple[Callable[[Path], None], type[Exception]]] = [
    (remove, ObjectNotFoundError),
    (grow, ObjectChangedError),
    (truncate, ObjectChangedError),
    (replace_by_pipe, StorageError),
    (replace_by_folder, StorageError),
    (replace_by_device, StorageError),
]


@contextmanager
def changed_after_the_listing(path: Path, change: Callable[[Path], None]) -> Iterator[None]:
    """Change a file between the listing and the first read of small files."""
    read = _native.read_small_files

    def changing(*args: Any) -> Any:
        if not changed:
            changed.append(1)
            change(path)
        return read(*args)

    changed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_native, "read_small_files", changing)
        yield
    assert changed


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_a_file_that_changed_since_the_listing_fails_alone(
    folder: Path, change: Callable[[Path], None], kind: type[Exception]
) -> None:
    with changed_after_the_listing(path_of(folder, BAD), change):
        rows, error = read_until_error(records(folder))
    assert rows == rows_of(range(BAD))
    assert isinstance(error, kind)
    assert str(path_of(folder, BAD)) in str(error)


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_a_file_that_is_gone_since_the_listing_is_skipped_alone(
    folder: Path, change: Callable[[Path], None], kind: type[Exception]
) -> None:
    with changed_after_the_listing(path_of(folder, BAD), change):
        rows, error = read_until_error(records(folder, on_error="skip"))
    if kind is ObjectChangedError:  # no policy continues with another file than the listed one
        assert isinstance(error, ObjectChangedError)
        assert rows == rows_of(range(BAD))
    else:
        assert error is None
        assert rows == rows_of(number for number in range(SHARDS) if number != BAD)


def test_compressed_empty_and_large_shards_among_small_ones_keep_their_turn(folder: Path) -> None:
    expected = {number: rows_of([number]) for number in range(SHARDS)}
    path_of(folder, 5).write_bytes(gzip.compress(content_of(7)))
    expected[5] = rows_of([7])
    path_of(folder, 50).write_bytes(b"")
    expected[50] = []
    path_of(folder, 150).write_bytes(frame(b"x" * 2_000_000))
    expected[150] = [b"x" * 2_000_000]
    rows, error = read_until_error(records(folder))
    assert error is None
    assert rows == [row for number in range(SHARDS) for row in expected[number]]


def test_running_out_of_file_descriptors_is_an_error_that_names_a_file(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[Any] = []

    def exhaust() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
        while True:
            try:
                opened.append(open("/dev/null"))  # noqa: SIM115 - closed below
            except OSError:
                return

    try:
        rows, error = read_until_error(records(folder), exhaust)
    finally:
        for file in opened:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rows == rows_of(range(SHARDS))[: len(rows)]
    assert error is None or ".tfrecord" in str(error)


# -- cost


def test_each_object_of_a_store_is_requested_once() -> None:
    """Empty objects have no bytes to request, so one HEAD request each shows whether they are still empty."""
    with fault_server("s3") as server:
        for number in range(100):
            server.put(f"set/{number:03}.tfrecord", content_of(number))
        dataset = Dataset.from_tfrecord(server.url("set/*.tfrecord"), storage_options=server.storage_options)
        with dataset.open() as loader:
            assert list(loader) == rows_of(range(100))
        asked = {kind: [each.name for each in server.log() if each.kind == kind] for kind in ("get", "head")}
    twice = ["set/001.tfrecord", "set/002.tfrecord", "set/003.tfrecord"]  # they show the compression of empty ones
    names = [f"set/{number:03}.tfrecord" for number in range(100)]
    assert sorted(asked["get"]) == sorted([*twice, *[name for number, name in enumerate(names) if number % 4]])
    assert sorted(asked["head"]) == names[::4]


def test_local_shards_share_hops(folder: Path) -> None:
    with records(folder).open() as loader:
        assert list(loader) == rows_of(range(SHARDS))
        stats = loader.stats()
    assert stats.stages[0].chunks < SHARDS / 20


# -- one bad object in a store


def test_an_object_that_stalls_delays_neither_its_neighbors_before_it_nor_the_order() -> None:
    stall = Rule(Fault(stall_at=1, stall_s=30.0), key="*/050.tfrecord", times=1)
    with fault_server("s3") as server:
        for number in range(100):
            server.put(f"set/{number:03}.tfrecord", content_of(number + 1))
        server.set_rules(stall)
        options = {**server.storage_options, "hedge": False, "read_timeout": 60.0}
        began = perf_counter()
        with Dataset.from_tfrecord(server.url("set/*.tfrecord"), storage_options=options).open() as loader:
            assert list(loader) == rows_of(range(1, 101))
        took_s = perf_counter() - began
    assert took_s < 10.0


# -- endings


@pytest.mark.parametrize("rows", [0, 1, 100, 300])
def test_leaving_at_any_row_leaves_nothing_behind(folder: Path, rows: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with records(folder, cycle_length=4).open() as loader:
        for _, _row in zip(range(rows), loader, strict=False):
            pass
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
def test_cancelling_after_any_number_of_turns_of_the_loop_ends_the_run(folder: Path, turns: int) -> None:
    async def read() -> None:
        async with records(folder).open() as loader:
            async for _ in loader:
                pass

    async def main() -> None:
        task = asyncio.create_task(read())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.done()

    asyncio.run(main())


def test_a_state_inside_a_group_resumes_at_the_same_row(folder: Path) -> None:
    dataset = records(folder, cycle_length=3, block_length=2)
    with dataset.open() as loader:
        every = list(loader)
    for stop in (0, 1, 7, 100, 250, len(every) - 1, len(every)):
        with dataset.open() as loader:
            iterator = iter(loader)
            first = [next(iterator) for _ in range(stop)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            assert first + list(loader) == every


def test_a_damaged_example_is_named_with_its_shard_and_record(tmp_path: Path) -> None:
    for number in range(50):
        path_of(tmp_path, number).write_bytes(frame(b"") + frame(b"\xff" if number == 20 else b""))
    rows, error = read_until_error(records(tmp_path).parse_example({"a": VarLen(np.int64)}))
    assert len(rows) == 41
    assert isinstance(error, DataError)
    assert "020.tfrecord" in str(error)
    assert "record 1" in str(error)
