"""Large members of local tar archives, each read into an object of its own: the same rows, errors and positions."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_tars import FORMATS, archive, member, samples_by_tarfile

from aiostream_data import CorruptRecordError, Dataset, ObjectChangedError
from aiostream_data._engine.sources import group_limits, shard_reader
from aiostream_data.errors import DataError
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.formats.webdataset_runs import WebDatasetRuns
from aiostream_data.formats.webdataset_samples import WebDatasetSamples
from aiostream_data.storage.file_reads import FileReader
from aiostream_data.testing.resume import resumes_everywhere

pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]

LARGE = 40_000
Members = list[tuple[str, bytes]]


class Reads:
    """Counts the runs that were read, and can act before each."""

    def __init__(self) -> None:
        self.count = 0
        self.before: Callable[[int], bool] = lambda _: True


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Read every shard alone, and count the runs."""
    monkeypatch.setattr(group_limits, "GROUP_NBYTES", 0)
    counted, read = Reads(), FileReader.read_pieces

    def read_pieces(self: FileReader, shard: Any, start: int, places: Sequence[memoryview]) -> bool:
        counted.count += 1
        return counted.before(counted.count) and read(self, shard, start, places)

    monkeypatch.setattr(FileReader, "read_pieces", read_pieces)
    return counted


@pytest.fixture
def without_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Let later loaders read all shards in ranges."""
    return lambda: monkeypatch.setattr(shard_reader, "finder_of", lambda *_: None)


def members(count: int, *, first: int = 0, nbytes: int = LARGE, seed: int = 0) -> Members:
    source = random.Random(seed)
    found: Members = []
    for row in range(first, first + count):
        pair = [
            (f"{row:04}.jpg", source.randbytes(source.randint(nbytes // 2, 2 * nbytes))),
            (f"{row:04}.cls", b"%d" % row),
        ]
        found += source.sample(pair, 2)
    return found


def written(folder: Path, stream: bytes, name: str = "large.tar") -> str:
    (folder / name).write_bytes(stream)
    return str(folder / name)


def outcome(path: str | Sequence[str], **options: Any) -> tuple[list[dict[str, Any]], str]:
    """Return all rows before an error, and the error."""
    rows: list[dict[str, Any]] = []
    try:
        for row in Dataset.from_webdataset(path, **options):
            rows.append(row)
    except DataError as error:
        return rows, str(error)
    return rows, ""


@pytest.mark.parametrize("format", FORMATS)
def test_samples_are_those_of_tarfile(tmp_path: Path, reads: Reads, format: str) -> None:
    stream = archive(members(60), format)
    assert list(Dataset.from_webdataset(written(tmp_path, stream))) == samples_by_tarfile(stream)
    assert reads.count > 1


@pytest.mark.parametrize("seed", range(8))
def test_runs_change_no_row(tmp_path: Path, without_runs: Callable[[], Any], seed: int) -> None:
    source = random.Random(seed)
    some: Members = []
    for part in range(source.randint(1, 6)):
        some += members(source.randint(1, 30), first=1000 * part, nbytes=source.choice([10, 2_000, 70_000]), seed=seed)
    paths = [written(tmp_path, archive(some), "a.tar"), written(tmp_path, archive(members(20, seed=seed)), "b.tar")]
    options: dict[str, Any] = {"cycle_length": source.choice([1, 2]), "block_length": source.choice([1, 3])}
    opened: dict[str, Any] = {"memory_limit": source.choice([16 << 20, 1 << 30])}

    def rows() -> list[Any]:
        with Dataset.from_webdataset(paths, **options).open(**opened) as loader:
            return list(loader)

    with_runs = rows()
    without_runs()
    assert with_runs == rows()


def test_samples_without_large_members_are_read_in_ranges(tmp_path: Path, reads: Reads) -> None:
    stream = archive(members(30, nbytes=2_000))
    assert list(Dataset.from_webdataset(written(tmp_path, stream))) == samples_by_tarfile(stream)
    assert not reads.count


def test_samples_with_other_extensions_are_read_in_ranges(tmp_path: Path, reads: Reads) -> None:
    stream = archive([*members(3), ("x.jpg", bytes(LARGE)), *members(3, first=5)])
    assert list(Dataset.from_webdataset(written(tmp_path, stream))) == samples_by_tarfile(stream)
    assert not reads.count


def test_empty_members_of_a_large_column_stay_empty(tmp_path: Path, reads: Reads) -> None:
    stream = archive([("a.jpg", bytes(3 * LARGE)), ("b.jpg", b""), ("c.jpg", bytes(LARGE)), ("d.jpg", b"")])
    assert list(Dataset.from_webdataset(written(tmp_path, stream))) == samples_by_tarfile(stream)
    assert reads.count


def test_a_loader_resumes_at_every_row(tmp_path: Path, reads: Reads) -> None:
    stream = archive([*members(25), *members(15, first=100, nbytes=50)])
    dataset = Dataset.from_webdataset(written(tmp_path, stream))
    resumes_everywhere(dataset)
    assert reads.count
    resumes_everywhere(dataset.shuffle(7, seed=1).batch(3))


def broken_archives() -> Iterator[tuple[str, bytes]]:
    some = members(40)
    whole = archive(some)
    place = whole.index(some[50][0].encode())
    yield "header", whole[: place + 130] + b"?" + whole[place + 131 :]
    yield "cut", whole[: place + 7_000]
    yield "no end", whole[:-1024]
    yield "again", archive([*some, *members(3, first=200, nbytes=20), some[0]])
    yield "again in runs", archive([*some, *members(3, first=200), some[0], ("0000.cls", b"")])
    yield "twice", archive([*some, ("x.jpg", bytes(LARGE)), ("x.jpg", bytes(LARGE))])
    yield "link", archive(some)[:-1024] + member("x.jpg", type=b"2", linkname="y") + bytes(1024)
    yield "another", whole + archive(members(3, first=300))


BROKEN = dict(broken_archives())


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("on_error", [None, "skip"])
def test_broken_archives_give_the_same_rows_and_errors(
    tmp_path: Path, reads: Reads, without_runs: Callable[[], Any], name: str, on_error: Any
) -> None:
    path = written(tmp_path, BROKEN[name])
    found = outcome(path, on_error=on_error)
    assert reads.count
    without_runs()
    assert found == outcome(path, on_error=on_error)
    assert bool(found[1]) == (on_error is None)


def test_a_sample_over_the_limit_is_refused(tmp_path: Path, reads: Reads, without_runs: Callable[[], Any]) -> None:
    path = written(tmp_path, archive([*members(20), ("x.jpg", bytes(4 * LARGE)), ("x.cls", b"")]))
    found = outcome(path, max_sample_nbytes=3 * LARGE)
    assert "larger than the limit" in found[1]
    assert reads.count
    without_runs()
    assert found == outcome(path, max_sample_nbytes=3 * LARGE)


def test_a_run_that_cannot_be_read_is_read_in_ranges(tmp_path: Path, reads: Reads) -> None:
    stream = archive(members(200))
    reads.before = lambda number: number != 3
    assert list(Dataset.from_webdataset(written(tmp_path, stream))) == samples_by_tarfile(stream)
    assert reads.count >= 3


def test_a_file_that_is_changed_while_it_is_read_raises_an_error(tmp_path: Path, reads: Reads) -> None:
    stream = archive(members(600))
    path = written(tmp_path, stream)

    def changed(number: int) -> bool:
        if number == 3:
            with open(path, "r+b") as file:
                file.write(stream[: 1 << 20])
            os.utime(path, ns=(1, 1))
        return True

    reads.before = changed
    rows: list[dict[str, Any]] = []
    with pytest.raises(ObjectChangedError, match=r"large\.tar"):
        rows.extend(Dataset.from_webdataset(path))
    assert rows == samples_by_tarfile(stream)[: len(rows)]


def test_a_file_that_is_truncated_while_it_is_read_raises_an_error(tmp_path: Path, reads: Reads) -> None:
    path = written(tmp_path, archive(members(600)))

    def truncated(number: int) -> bool:
        if number == 2:
            os.truncate(path, 100_000)
        return True

    reads.before = truncated
    with pytest.raises(ObjectChangedError, match=r"large\.tar"):
        list(Dataset.from_webdataset(path))


def test_a_loader_can_be_closed_after_any_row(tmp_path: Path, reads: Reads) -> None:
    path = written(tmp_path, archive(members(120)))
    for stop in (0, 1, 2, 30, 119):
        with Dataset.from_webdataset(path).open() as loader:
            for row, _ in zip(range(stop), loader, strict=False):
                assert row < stop
    assert reads.count


def test_archives_under_a_wrong_compression_raise_the_usual_error(tmp_path: Path, reads: Reads) -> None:
    path = written(tmp_path, archive(members(10)))
    with pytest.raises(CorruptRecordError, match="gzip"):
        list(Dataset.from_webdataset(path, compression="gzip"))
    assert not reads.count


def test_direct_reads_use_ranges(tmp_path: Path, reads: Reads) -> None:
    stream = archive(members(20))
    options: dict[str, Any] = {"storage_options": {"direct": True}}
    assert list(Dataset.from_webdataset(written(tmp_path, stream), **options)) == samples_by_tarfile(stream)
    assert not reads.count


def finder(limit: int = 1 << 30) -> WebDatasetRuns:
    found = WebDatasetFormat(max_sample_nbytes=limit).run_finder("x.tar", WebDatasetSamples())
    assert isinstance(found, WebDatasetRuns)
    return found


def test_runs_follow_each_other_and_keep_their_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, archive(members(80)))
    sizes = [100_000, 200_000, 2_000_000]
    with open(path, "rb") as file:
        runs = finder().find(file.fileno(), 0, os.path.getsize(path), sizes)
    assert runs[0].start == 0
    assert [run.start for run in runs[1:]] == [run.stop for run in runs[:-1]]
    assert sum(run.rows for run in runs) == 80
    for number, run in enumerate(runs):
        assert run.rows == 1 or run.nbytes <= sizes[min(number, 2)]
        assert run.other_nbytes == run.nbytes - sum(nbytes for _, nbytes in run.values.tolist())


def test_a_record_over_the_largest_run_is_left_to_ranges(tmp_path: Path) -> None:
    path = written(tmp_path, archive([*members(3), ("x.jpg", bytes(1_500_000)), ("x.cls", b""), *members(3, first=9)]))
    with open(path, "rb") as file:
        found = finder()
        runs = found.find(file.fileno(), 0, os.path.getsize(path), [500_000])
        assert sum(run.rows for run in runs) == 3
        assert found.find(file.fileno(), runs[-1].stop, os.path.getsize(path), [500_000]) == []


def test_other_decoders_have_no_finder() -> None:
    assert WebDatasetFormat().run_finder("x.tar", object()) is None
