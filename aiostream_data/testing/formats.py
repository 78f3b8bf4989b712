"""Tests for formats of your own: subclass :class:`FormatSuite` in a test module and run pytest.

::

    class TestMyFormat(FormatSuite):
        description = MyFormat()
        stream = b"..."
        records = [b"...", ...]
        damaged = [Damage(stream=b"...", records=[...], offset=12)]

        def encode(self, records): ...

Formats with row groups derive from :class:`.TableFormatSuite`.

The tests check the framer (:mod:`.framing`): blocks, compression, truncation, damage, and starts at any record. They
also read files through a ``Dataset``: states, origins, ``fetch``, skipped damage, and the ranges that are requested.
The tests do not import pytest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final
from unittest import SkipTest

from aiostream_data.dataset.dataset import Dataset
from aiostream_data.formats.base import Format
from aiostream_data.testing.comparing import same
from aiostream_data.testing.cut_streams import (
    Damage,
    ReadOutcome,
    blocks_of,
    compressed,
    cuttings,
    read_around_damage,
    read_blocks,
)
from aiostream_data.testing.fault_store import Requests
from aiostream_data.testing.framing import FramingSuite
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.table_formats import TableDamage, TableFormatSuite
from aiostream_data.testing.watched_file import file_of, nbytes_read, watched

__all__ = [
    "Damage",
    "Format",
    "FormatSuite",
    "FramingSuite",
    "ReadOutcome",
    "TableDamage",
    "TableFormatSuite",
    "blocks_of",
    "compressed",
    "cuttings",
    "read_around_damage",
    "read_blocks",
]

_LARGE_NBYTES: Final = 16 << 20
"""Size of the file that shows which ranges are requested: several times the part of a file that is one chunk."""

_MOST_RECORDS: Final = 12
"""Maximum number of records that are read again one by one."""


class FormatSuite(FramingSuite):
    """Base class of format tests: name a subclass ``Test...``, set its attributes, and override :meth:`encode`."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return a stream of these records. The default skips the tests that need a large file."""
        raise SkipTest("encode() is not overridden, so no large file can be made")

    # -- files

    def test_files_are_read_and_resume_after_every_record(self) -> None:
        with file_of(self.stream) as path:
            dataset = self._dataset(path)
            assert list(dataset) == list(self.records)
            resumes_everywhere(dataset, every=max(1, len(self.records) // _MOST_RECORDS))

    def test_compressed_files_resume_after_every_record(self) -> None:
        with file_of(compressed(self.stream, "gzip")) as path:
            dataset = self._dataset(path)
            assert list(dataset) == list(self.records)
            resumes_everywhere(dataset, every=max(1, len(self.records) // _MOST_RECORDS), twice=False)

    def test_every_record_has_an_origin_and_can_be_fetched(self) -> None:
        with file_of(self.stream) as path, self._dataset(path).open() as loader:
            for number, record in enumerate(loader):
                (origin,) = loader.origins()
                assert (origin.url, origin.index) == (str(path), number)
                if number < _MOST_RECORDS or number == len(self.records) - 1:
                    assert same(self._dataset(path).fetch(json.loads(json.dumps(origin.as_dict()))), record), number

    def test_damaged_files_are_skipped_by_policy(self) -> None:
        for damage in self.damaged:
            found = read_around_damage(self.description, damage.stream)[0]
            with file_of(damage.stream) as path:
                dataset = self._dataset(path, on_error="skip")
                assert list(dataset) == found, damage
                resumes_everywhere(dataset, every=max(1, len(found) // _MOST_RECORDS), twice=False)

    # -- ranges of a large file

    def test_a_resumed_run_reads_no_consumed_data(self) -> None:
        with self._large() as (url, records, requests):
            dataset = self._dataset(url)
            consumed = len(records) * 7 // 8
            with dataset.open() as loader:
                assert sum(1 for _ in islice(loader, consumed)) == consumed
                state = json.loads(json.dumps(loader.state_dict()))
            requests.clear()
            with dataset.open(state) as loader:
                assert all(map(same, loader, records[consumed:]))
            starts = [request.start for request in requests if request.kind == "get"]
            assert min(starts) >= _LARGE_NBYTES // 2, "the resumed run read the start of the file"

    def test_a_record_is_fetched_from_its_part_of_the_file(self) -> None:
        with self._large() as (url, records, requests):
            dataset = self._dataset(url)
            with dataset.open() as loader:
                for _ in islice(loader, len(records) * 7 // 8):
                    pass
                (origin,) = loader.origins()
            requests.clear()
            assert same(dataset.fetch(origin), records[origin.index])
            read = nbytes_read(requests)
            assert read <= _LARGE_NBYTES // 2, f"{read} bytes were read for one record"

    def test_the_first_record_needs_no_whole_file(self) -> None:
        with self._large() as (url, records, requests):
            with self._dataset(url).open(memory_limit="4MiB") as loader:
                assert same(next(iter(loader)), records[0])
            read = nbytes_read(requests)
            assert read <= _LARGE_NBYTES // 2, f"{read} bytes were read for one record"

    # -- parts of the tests

    def _dataset(self, path: Path | str, **options: Any) -> Dataset[Any]:
        return Dataset.from_format(str(path), self.description, **options)

    @contextmanager
    def _large(self) -> Iterator[tuple[str, list[Any], Requests]]:
        """Write a large file. Return its URL, its records, and the list of the requests for it."""
        self._offsets()
        records = _repeated(self.records, self.encode)
        with watched(self.encode(records)) as (url, requests):
            yield url, records, requests


def _repeated(records: Sequence[Any], encode: Callable[[Sequence[Any]], bytes]) -> list[Any]:
    """Return records for a file of about ``_LARGE_NBYTES``."""
    given = list(records)
    nbytes = len(encode(given * 2)) - len(encode(given))
    return given * (_LARGE_NBYTES // nbytes + 1)
