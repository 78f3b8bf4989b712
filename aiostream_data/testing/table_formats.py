"""Tests for formats with row groups of your own: subclass :class:`TableFormatSuite` in a test module and run pytest.

::

    class TestMyFormat(TableFormatSuite):
        format = MyFormat()
        rows = [...]
        damaged = [TableDamage(file=b"...", lost=[3, 4, 5])]

        def encode(self, rows, group_rows): ...

The tests read the format from memory: starts at any row, declared memory, truncation and damage. They also read files
through a ``Dataset``: ranks, states, origins, ``fetch``, interleaving, skipped groups, and requested ranges. The tests
do not import pytest.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import islice, product
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar
from unittest import SkipTest

from aiostream_data.dataset.dataset import Dataset
from aiostream_data.errors import AiostreamError, CorruptRecordError, ObjectNotFoundError
from aiostream_data.failing.policies import Quarantine
from aiostream_data.formats.row_groups import TableFormat
from aiostream_data.ranks import Policy
from aiostream_data.testing.comparing import multiset_difference, same, sequence_difference
from aiostream_data.testing.fault_store import Requests
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.table_reading import directory_of, is_view, parts_of, rows_of, rows_of_group
from aiostream_data.testing.watched_file import file_of, files_of, nbytes_read, watched

E = TypeVar("E", bound=AiostreamError)

_LARGE_NBYTES: Final = 32 << 20
"""Size of the file that shows which ranges are requested: several times the groups that are read together."""

_GROUP_NBYTES: Final = 1 << 20
_FAR: Final = 1 << 31
_MOST_PLACES: Final = 600
"""Maximum number of bytes in the middle of a file that are changed, or at which it is truncated."""

_END_NBYTES: Final = 400


class TableDamage(NamedTuple):
    """Damaged file, and the rows that a reader which skips damage must leave out.

    Attributes:
        file: Content of the file.
        lost: Numbers of the rows of the damaged groups.
        rows: Rows of the file before the damage. None for the rows of the suite.
        groups: Number of damaged groups.
        offset: Offset that the error must report, or None to accept any.
    """

    file: bytes
    lost: Sequence[int]
    rows: Sequence[Any] | None = None
    groups: int = 1
    offset: int | None = None


class TableFormatSuite:
    """Base class of tests of a format with row groups: name a subclass ``Test...``, and set its attributes.

    Attributes:
        format: The format.
        rows: At least four different rows, as a ``Dataset`` delivers them. Rows of about 1 KB make the tests fast.
        damaged: Files with damaged row groups.
        selected: Format that reads only columns with less than half of the bytes. None skips the tests of columns.
        suffix: End of the names of files.
        stores_row_count: False if files do not contain their number of rows. The first rows of a truncated file are
            then no error.
    """

    format: ClassVar[TableFormat]
    rows: ClassVar[Sequence[Any]]
    damaged: ClassVar[Sequence[TableDamage]] = ()
    selected: ClassVar[TableFormat | None] = None
    suffix: ClassVar[str] = ".records"
    stores_row_count: ClassVar[bool] = True

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        """Return a file of these rows in groups of ``group_rows`` rows, not compressed."""
        raise NotImplementedError("override encode()")

    def select(self, row: Any) -> Any:
        """Return the part of a row that the format ``selected`` reads."""
        raise NotImplementedError("override select()")

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        """Write a file whose groups with these rows begin beyond 2 GiB, and return the number of their first row.

        Leave a hole in the file, which needs no space on a disk. The default skips the test.
        """
        raise SkipTest("write_far() is not overridden")

    def dataset(self, files: Any, format: TableFormat | None = None, **options: Any) -> Dataset[Any]:
        """Return the dataset of files. Override it to test a constructor of your own."""
        return Dataset.from_format(files, self.format if format is None else format, **options)

    # -- the format, without a Dataset

    def test_description_is_hashable_and_survives_pickling(self) -> None:
        copy = pickle.loads(pickle.dumps(self.format))
        assert copy == self.format
        assert hash(copy) == hash(self.format)
        _check(self.rows, rows_of(copy, self.encode(self.rows, 2)))

    def test_reading_starts_at_any_row(self) -> None:
        for group_rows in (1, 2, len(self.rows)):
            content = self.encode(self.rows, group_rows)
            directory = directory_of(self.format, content)
            assert directory.rows == len(self.rows)
            for first in range(len(self.rows) + 1):
                _check(self.rows[first:], self._rows_of(content, first))
                stops = [group.first_row + group.rows for group in directory.groups_from(first)]
                starts = [group.first_row for group in directory.groups_from(first)]
                assert starts[1:] == stops[:-1], f"the groups from row {first} on overlap or have gaps"
                assert all(stop > first for stop in stops), f"a group ends before row {first}"

    def test_declared_memory_covers_the_rows(self) -> None:
        content = self.encode(self.rows, 2)
        directory = directory_of(self.format, content)
        for group in directory.groups_from(0):
            parts = parts_of(content, group.ranges)
            declared = directory.decoded_nbytes(group, parts)
            for filtered in (True, False):
                leaves = [leaf for found in directory.decode(group, parts, filtered=filtered) for leaf in found.leaves]
                needed, most = sum(leaf.nbytes for leaf in leaves), group.stored_nbytes + declared
                assert needed <= most, f"{needed} bytes were decoded, but {most} were declared"
                copied = sum(leaf.nbytes for leaf in leaves if not is_view(leaf, parts))
                assert copied <= declared, (
                    f"{copied} bytes were decoded to columns that do not refer to the bytes of the file, but "
                    f"{declared} were declared by decoded_nbytes()"
                )

    def test_a_truncated_file_is_an_error_or_complete(self) -> None:
        rows = self.rows[:3]
        content = self.encode(rows, 2)
        for stop in _places(len(content)):
            try:
                found = list(self._rows_of(content[:stop]))
            except CorruptRecordError:
                continue
            expected = rows if self.stores_row_count else rows[: len(found)]
            _check(expected, found, f"the file of {len(content)} bytes was truncated after {stop}")

    def test_any_changed_byte_leads_to_rows_or_to_an_error_of_the_data(self) -> None:
        content = self.encode(self.rows[:3], 2)
        for place, bits in product(_places(len(content)), (0xFF, 0x08)):
            changed = content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]
            with suppress(AiostreamError):
                directory = directory_of(self.format, changed, _LARGE_NBYTES, f"file{self.suffix}")
                try:
                    groups = list(directory.groups_from(0))
                except AiostreamError as error:
                    raise AssertionError(f"groups_from() raised {error!r}. Check the groups in directory().") from error
                for group in groups:
                    rows_of_group(directory, group, changed, limit=_LARGE_NBYTES)

    def test_offsets_beyond_two_gibibytes_are_exact(self) -> None:
        with self._file(b"") as path:
            first = self.write_far(path, self.rows)
            with path.open("rb") as file, closing(mmap(file.fileno(), 0, access=ACCESS_READ)) as content:
                directory = directory_of(self.format, content)
                groups = list(directory.groups_from(first))
                assert any(part.start >= _FAR for part in groups[-1].ranges), "no group begins beyond 2 GiB"
                found = [row for group in groups for row in rows_of_group(directory, group, content, first)]
                _check(self.rows, found)
            if not first:
                dataset = self.dataset(path)
                _check(self.rows, dataset)
                assert same(dataset.fetch(_origin(dataset, len(self.rows) - 1)), self.rows[-1])

    # -- files

    def test_files_are_read_in_groups_of_any_size(self) -> None:
        for group_rows in (1, 2, 3, len(self.rows)):
            with self._file(self.encode(self.rows, group_rows)) as path:
                _check(self.rows, self.dataset(path))
                _check(self.rows, self.dataset(path).prefetch(1))

    def test_ranks_receive_each_row_once(self) -> None:
        with self._copies(3) as (paths, given):
            dataset = self.dataset(paths, cycle_length=2)
            expected = list(dataset)
            assert (difference := multiset_difference(given, expected)) is None, difference
            shared: Sequence[tuple[Policy, int]] = (
                ("row", 2),
                ("row", len(expected)),
                ("row", 5),
                ("file", 2),
                ("file", 3),
            )
            for policy, world_size in shared:
                found: list[Any] = []
                for rank in range(world_size):
                    with dataset.open(rank=rank, world_size=world_size, policy=policy) as loader:
                        found += loader
                dropped = len(expected) % world_size if policy == "row" else 0
                difference = multiset_difference(expected[: len(expected) - dropped], found)
                assert difference is None, f"{world_size} ranks that share by {policy}: {difference}"

    def test_workers_receive_each_row_once(self) -> None:
        with self._copies(2) as (paths, expected):
            found: list[Any] = []
            for worker in range(3):
                with self.dataset(paths).open(rank=0, world_size=1, worker=(worker, 3)) as loader:
                    found += loader
            assert (difference := multiset_difference(expected, found)) is None, difference

    def test_a_file_resumes_after_every_row(self) -> None:
        for group_rows in (1, 3):
            with self._file(self.encode(self.rows, group_rows)) as path:
                resumes_everywhere(self.dataset(path))

    def test_files_are_interleaved_and_shuffled_and_resume_after_every_row(self) -> None:
        with self._copies(2) as (paths, expected):
            pairs = zip(self.rows, self.rows, strict=True)
            dataset = self.dataset(paths, cycle_length=2)
            _check([row for pair in pairs for row in pair], dataset)
            resumes_everywhere(dataset)
            shuffled = self.dataset(paths, shuffle_shards=True, seed=3)
            assert multiset_difference(expected, shuffled) is None
            resumes_everywhere(shuffled.shuffle(3, seed=1))

    def test_every_row_has_an_origin_and_can_be_fetched(self) -> None:
        with self._file(self.encode(self.rows, 2)) as path, self.dataset(path).open() as loader:
            for number, row in enumerate(loader):
                (origin,) = loader.origins()
                assert (origin.url, origin.index) == (str(path), number)
                assert same(self.dataset(path).fetch(json.loads(json.dumps(origin.as_dict()))), row), number

    def test_files_without_rows_are_read(self) -> None:
        with self._files([self.encode([], 2), self.encode(self.rows, 2), self.encode([], 2)]) as paths:
            _check(self.rows, self.dataset(paths))

    # -- damaged and missing files

    def test_a_damaged_group_is_skipped_alone(self) -> None:
        for damage in self.damaged:
            rows = self.rows if damage.rows is None else damage.rows
            left = [number for number in range(len(rows)) if number not in damage.lost]
            with self._files([damage.file, b""]) as (path, log):
                error = _error_of(self.dataset(path), CorruptRecordError, path)
                assert damage.offset in (None, error.offset), f"the error has offset {error.offset}"
                dataset = self.dataset(path, on_error="skip")
                numbers: list[int] = []
                with dataset.open() as loader:
                    for row in loader:
                        numbers += [origin.index for origin in loader.origins()]
                        assert same(row, rows[numbers[-1]]), f"row {numbers[-1]} is wrong"
                    skipped = sum(stage.skipped for stage in loader.stats().stages)
                assert numbers == left, f"the rows {left} should be left, not {numbers}"
                assert skipped == damage.groups, f"{skipped} groups were counted, not {damage.groups}"
                resumes_everywhere(dataset, twice=False)
                _check([rows[number] for number in left], self.dataset(path, on_error=Quarantine(log)))
                entries = [json.loads(line) for line in log.read_text().splitlines()]
                assert [entry["lost"] for entry in entries] == ["records"] * damage.groups
                assert all(entry["url"] == str(path) for entry in entries)
                assert damage.offset in (None, entries[0]["offset"])

    def test_damaged_and_missing_files_are_skipped_alone(self) -> None:
        content = self.encode(self.rows, 2)
        other = b"not a file of this format" * 3
        for broken in (b"", other, content[: len(content) // 2]):
            if not self.stores_row_count and broken != other:
                continue
            with self._files([content, broken, content]) as paths:
                _error_of(self.dataset(paths), CorruptRecordError, paths[1])
                dataset = self.dataset(paths, on_error="skip")
                _check([*self.rows, *self.rows], dataset)
                with dataset.open() as loader:
                    assert sum(1 for _ in loader) == 2 * len(self.rows)
                    assert sum(stage.skipped for stage in loader.stats().stages) == 1
        with self._files([content, b"", content]) as paths:
            urls = Dataset.from_list(list(map(str, paths)))
            paths[1].unlink()
            _error_of(self.dataset(urls), ObjectNotFoundError, paths[1])
            _check([*self.rows, *self.rows], self.dataset(urls, on_error="skip"))

    # -- ranges of a large file

    def test_a_resumed_run_reads_no_consumed_group(self) -> None:
        with self._large() as (url, rows, requests):
            dataset = self.dataset(url)
            consumed = len(rows) * 7 // 8
            with dataset.open(memory_limit=_LARGE_NBYTES) as loader:
                assert all(map(same, islice(loader, consumed), rows))
                state = json.loads(json.dumps(loader.state_dict()))
            requests.clear()
            with dataset.open(state) as loader:
                _check(rows[consumed:], loader)
            read = nbytes_read(requests)
            assert read <= _LARGE_NBYTES // 2, f"{read} bytes were read for an eighth of the file"

    def test_one_row_needs_only_its_part_of_the_file(self) -> None:
        with self._large() as (url, rows, requests):
            dataset = self.dataset(url)
            with dataset.open() as loader:
                assert same(next(iter(loader)), rows[0])
            for number in (len(rows) // 2, len(rows) - 1):
                origin = _origin(dataset, number)
                requests.clear()
                assert same(dataset.fetch(origin), rows[number])
                read = nbytes_read(requests)
                assert read <= _LARGE_NBYTES // 2, f"{read} bytes were read for row {number}"

    def test_only_selected_columns_are_read(self) -> None:
        if self.selected is None:
            raise SkipTest("selected is not set")
        with self._large() as (url, rows, requests):
            _check(list(map(self.select, rows)), self.dataset(url, self.selected))
            read = nbytes_read(requests)
            assert read <= _LARGE_NBYTES // 2, f"{read} bytes were read for a part of the columns"

    # -- parts of the tests

    def _file(self, content: bytes) -> AbstractContextManager[Path]:
        return file_of(content, self.suffix)

    def _files(self, contents: Sequence[bytes]) -> AbstractContextManager[list[Path]]:
        return files_of(contents, self.suffix)

    def _rows_of(self, content: bytes, first: int = 0) -> Iterator[Any]:
        return rows_of(self.format, content, first, _LARGE_NBYTES, f"file{self.suffix}")

    @contextmanager
    def _copies(self, count: int) -> Iterator[tuple[list[Path], list[Any]]]:
        with self._files([self.encode(self.rows, 2)] * count) as paths:
            yield paths, list(self.rows) * count

    @contextmanager
    def _large(self) -> Iterator[tuple[str, list[Any], Requests]]:
        """Write a large file with many groups. Return its URL, its rows, and the list of the requests for it."""
        given = list(self.rows) * 50
        row_nbytes = (len(self.encode(given * 2, len(given))) - len(self.encode(given, len(given)))) / len(given)
        rows = given * (int(_LARGE_NBYTES / row_nbytes) // len(given) + 1)
        with watched(self.encode(rows, max(1, int(_GROUP_NBYTES / row_nbytes))), self.suffix) as (url, requests):
            yield url, rows, requests


def _check(expected: Sequence[Any], found: Any, what: str = "") -> None:
    """Check that rows are equal, bit by bit."""
    difference = sequence_difference(expected, list(found), same)
    assert difference is None, f"{what}: {difference}" if what else difference


def _error_of(dataset: Dataset[Any], kind: type[E], path: Path) -> E:
    """Return the error of a run, which must name the file."""
    try:
        list(dataset)
    except kind as error:
        found = error
    else:
        raise AssertionError(f"no {kind.__name__} was raised for {path.name}")
    assert path.name in str(found), f"the error does not name {path.name}: {found}"
    return found


def _origin(dataset: Dataset[Any], number: int) -> dict[str, Any]:
    """Return the origin of a row of a dataset of one file."""
    with dataset.open() as loader:
        for _ in islice(loader, number + 1):
            pass
        (origin,) = loader.origins()
    return dict(json.loads(json.dumps(origin.as_dict())))


def _places(nbytes: int) -> list[int]:
    """Return all places in a small file; the first, the last and some other ones in a large file."""
    middle = range(_END_NBYTES, nbytes - _END_NBYTES, max(1, nbytes // _MOST_PLACES))
    return sorted({*range(min(_END_NBYTES, nbytes)), *middle, *range(max(0, nbytes - _END_NBYTES), nbytes)})
