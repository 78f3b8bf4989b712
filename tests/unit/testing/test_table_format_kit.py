"""The kit for formats with row groups passes a sound format, and finds the mistakes of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np
import pytest
from grouped_format import GroupedDirectory, GroupedFormat, grouped

from aiostream_data import CorruptRecordError
from aiostream_data.formats.extending import ByteRange, Directory, RowGroup, Steps, TableFormat, TableRows
from aiostream_data.testing.formats import TableDamage, TableFormatSuite

ROWS = [{"label": n, "x": np.full(64, n / 2, np.float32)} for n in range(7)]
FILE = bytearray(grouped(ROWS, 2))
FILE[600] ^= 0xFF
SECOND = TableDamage(bytes(FILE), [2, 3], offset=544)
FILE[1600] ^= 0xFF
FAR = 5 << 30


class TestOwnFormat(TableFormatSuite):
    format: ClassVar[TableFormat] = GroupedFormat()
    selected: ClassVar[TableFormat | None] = GroupedFormat(("label",))
    rows = ROWS
    damaged = (SECOND, TableDamage(bytes(FILE), [2, 3, 6], groups=2, offset=544))

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return grouped(rows, group_rows)

    def select(self, row: Any) -> Any:
        return {"label": row["label"]}

    def write_far(self, path: Path, rows: Sequence[Any]) -> int:
        with path.open("wb") as file:
            file.seek(FAR)
            file.write(grouped(rows, 2, FAR))
        return 0


class StartsAtTheFirstGroup(GroupedDirectory):
    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        return iter(self.groups)


class SkipsAGroup(GroupedDirectory):
    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        return (group for group in super().groups_from(first_row) if group.first_row != 2)


class RepeatsAGroup(GroupedDirectory):
    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        return (group for group in super().groups_from(first_row) for _ in range(1 + (group.first_row == 2)))


class ReadsTheWholeFile(GroupedDirectory):
    """Reads all bytes for each group, and uses those of the group."""

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        whole = ByteRange(0, max(part.stop for group in self.groups for part in group.ranges))
        return (group._replace(ranges=(whole,)) for group in super().groups_from(first_row))

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        stored = next(each for each in self.groups if each.first_row == group.first_row)
        return super().decode(stored, [parts[0][part.start : part.stop] for part in stored.ranges])


class LosesTheLastRow(GroupedDirectory):
    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        (found,) = super().decode(group, parts)
        leaves = tuple(leaf.slice(0, 1) if not isinstance(leaf, np.ndarray) else leaf[:1] for leaf in found.leaves)
        return [TableRows(found.structure, leaves, found.rows[:1])]


class NumbersRowsOfEachGroup(GroupedDirectory):
    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        return [found._replace(rows=found.rows - group.first_row) for found in super().decode(group, parts)]


class DeclaresNoCopies(GroupedDirectory):
    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        (found,) = super().decode(group, parts)
        leaves = tuple(leaf.astype(np.complex128) for leaf in found.leaves if isinstance(leaf, np.ndarray))
        return [found._replace(leaves=leaves)]


class DeclaresNoCopiesOfTheSameSize(GroupedDirectory):
    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        (found,) = super().decode(group, parts)
        return [found._replace(leaves=tuple(leaf.copy() for leaf in found.leaves if isinstance(leaf, np.ndarray)))]


class IgnoresChecksums(GroupedDirectory):
    def __init__(self, columns: Sequence[str], url: str, stored: Any, nbytes: int) -> None:
        super().__init__(columns, url, stored, nbytes)
        self.sums = []

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        types = {"label": "<i8", "x": ("<f4", 64)}
        named = zip(self.columns, parts, strict=True)
        return [TableRows.of({name: np.frombuffer(part, types[name]) for name, part in named}, group.first_row)]  # type: ignore[call-overload]


class CountsInFourBytes(GroupedDirectory):
    def __init__(self, columns: Sequence[str], url: str, stored: Any, nbytes: int) -> None:
        super().__init__(columns, url, [(rows, start & 0x7FFFFFFF, sums) for rows, start, sums in stored], nbytes)


class TrustsTheDirectory(GroupedDirectory):
    """Checks no place of a group."""

    def __init__(self, columns: Sequence[str], url: str, stored: Any, nbytes: int) -> None:
        super().__init__(
            columns, url, [(rows, start + 3000 * (start > 1000), sums) for rows, start, sums in stored], 1 << 62
        )


class ChecksGroupsLate(GroupedDirectory):
    def __init__(self, columns: Sequence[str], url: str, stored: Any, nbytes: int) -> None:
        super().__init__(columns, url, stored, 1 << 62)
        self.nbytes = nbytes

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        for group in super().groups_from(first_row):
            if group.ranges[-1].stop > self.nbytes:
                raise CorruptRecordError(self.url, 0, "outside of the file")
            yield group


class FailsForDamage(GroupedDirectory):
    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        try:
            return super().decode(group, parts)
        except CorruptRecordError:
            raise IndexError("out of range") from None


def suite_of(directory: type[GroupedDirectory]) -> TableFormatSuite:
    class Broken(GroupedFormat):
        kind = directory

    return suite_for(Broken(), Broken(("label",)))


def suite_for(format: TableFormat, selected: TableFormat | None = None) -> TableFormatSuite:
    class Suite(TestOwnFormat):
        pass

    Suite.format, Suite.selected = format, selected
    return Suite()


MISTAKES: list[tuple[type[GroupedDirectory], Callable[[TableFormatSuite], None]]] = [
    (StartsAtTheFirstGroup, TableFormatSuite.test_reading_starts_at_any_row),
    (StartsAtTheFirstGroup, TableFormatSuite.test_a_resumed_run_reads_no_consumed_group),
    (SkipsAGroup, TableFormatSuite.test_reading_starts_at_any_row),
    (SkipsAGroup, TableFormatSuite.test_files_are_read_in_groups_of_any_size),
    (RepeatsAGroup, TableFormatSuite.test_reading_starts_at_any_row),
    (ReadsTheWholeFile, TableFormatSuite.test_one_row_needs_only_its_part_of_the_file),
    (ReadsTheWholeFile, TableFormatSuite.test_only_selected_columns_are_read),
    (LosesTheLastRow, TableFormatSuite.test_ranks_receive_each_row_once),
    (NumbersRowsOfEachGroup, TableFormatSuite.test_a_file_resumes_after_every_row),
    (NumbersRowsOfEachGroup, TableFormatSuite.test_every_row_has_an_origin_and_can_be_fetched),
    (DeclaresNoCopies, TableFormatSuite.test_declared_memory_covers_the_rows),
    (DeclaresNoCopiesOfTheSameSize, TableFormatSuite.test_declared_memory_covers_the_rows),
    (IgnoresChecksums, TableFormatSuite.test_a_damaged_group_is_skipped_alone),
    (CountsInFourBytes, TableFormatSuite.test_offsets_beyond_two_gibibytes_are_exact),
    (ChecksGroupsLate, TableFormatSuite.test_any_changed_byte_leads_to_rows_or_to_an_error_of_the_data),
    (TrustsTheDirectory, TableFormatSuite.test_declared_memory_covers_the_rows),
]


@pytest.mark.parametrize(("directory", "finds"), MISTAKES)
def test_a_mistake_is_found(directory: type[GroupedDirectory], finds: Callable[[TableFormatSuite], None]) -> None:
    with pytest.raises((AssertionError, CorruptRecordError)):
        finds(suite_of(directory))


def test_errors_of_other_classes_are_found() -> None:
    suite = suite_of(FailsForDamage)
    for test in (
        suite.test_any_changed_byte_leads_to_rows_or_to_an_error_of_the_data,
        suite.test_a_damaged_group_is_skipped_alone,
    ):
        with pytest.raises(IndexError):
            test()


class AcceptsTruncatedFiles(GroupedFormat):
    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        try:
            return (yield from super().directory(url, nbytes))
        except CorruptRecordError:
            return GroupedDirectory(self.columns, url, [], nbytes)


def test_a_format_that_takes_a_truncated_file_for_an_empty_one_is_found() -> None:
    suite = suite_for(AcceptsTruncatedFiles())
    for test in (
        suite.test_a_truncated_file_is_an_error_or_complete,
        suite.test_damaged_and_missing_files_are_skipped_alone,
    ):
        with pytest.raises(AssertionError):
            test()


class Unequal(GroupedFormat):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def test_a_description_without_equality_is_found() -> None:
    with pytest.raises(AssertionError):
        suite_for(Unequal()).test_description_is_hashable_and_survives_pickling()


class ReadsTheFirstByte(GroupedFormat):
    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        yield [ByteRange(0, 12)]
        return (yield from super().directory(url, nbytes))


def test_requests_outside_of_a_file_are_found() -> None:
    with pytest.raises(AssertionError, match="outside of the file"):
        suite_for(ReadsTheFirstByte()).test_a_truncated_file_is_an_error_or_complete()


class FewMethods(TableFormatSuite):
    format: ClassVar[TableFormat] = GroupedFormat()
    rows = ROWS

    def encode(self, rows: Sequence[Any], group_rows: int) -> bytes:
        return grouped(rows, group_rows)


def test_tests_of_what_a_suite_does_not_define_are_skipped() -> None:
    suite = FewMethods()
    for test in (suite.test_only_selected_columns_are_read, suite.test_offsets_beyond_two_gibibytes_are_exact):
        with pytest.raises(SkipTest):
            test()
