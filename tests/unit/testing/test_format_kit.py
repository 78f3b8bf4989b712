"""The kit for formats passes sound formats, and finds the mistakes of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np
import pytest
from prefixed_format import PrefixedFormat, PrefixedFramer, prefixed

from aiostream_data.formats.base import Format
from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.rows.columns import VarColumn
from aiostream_data.testing.formats import Damage, FormatSuite, FramingSuite

RECORDS = (b"one", b"", b"three", b"x" * 100)
STREAM = prefixed(RECORDS)
DAMAGED = (
    Damage(prefixed([b"one"]) + b"\xff" * 4, [b"one"], 7),
    Damage(prefixed([b"one", b"two"])[:-1], [b"one"], 7),
)


class TestOwnFormat(FormatSuite):
    description: ClassVar[Format] = PrefixedFormat()
    stream = STREAM
    records = RECORDS
    damaged = DAMAGED

    def encode(self, records: Sequence[Any]) -> bytes:
        return prefixed(records)


def framed(*records: bytes) -> bytes:
    return b"".join(map(frame, records))


class TestFormatThatFindsTheNextRecord(FormatSuite):
    description = TFRecordFormat()
    stream = framed(*RECORDS)
    records = RECORDS
    damaged = (
        Damage(
            framed(b"one") + framed(b"two").replace(b"two", b"tWo") + framed(b"three"),
            [b"one"],
            len(framed(b"one")),
            after=[b"three"],
        ),
    )

    def encode(self, records: Sequence[Any]) -> bytes:
        return framed(*records)


class DropsTheRestOfABlock(PrefixedFramer):
    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        return super()._cut(values, start, stop)._replace(consumed=stop)


class LosesTheLastRecord(PrefixedFramer):
    def _end(self, tail: Bytes) -> Cut:
        return Cut(no_records(), 0)


class FailsAtTheEnd(PrefixedFramer):
    def _end(self, tail: Bytes) -> Cut:
        if len(tail):
            raise IndexError("out of range")
        return super()._end(tail)


class RepeatsRecords(PrefixedFramer):
    def _end(self, tail: Bytes) -> Cut:
        return super()._end(tail) if not len(tail) else super()._cut(prefixed_array(b"one", b"one"), 0, 14)


class ForgetsThePrefix(PrefixedFramer):
    prefix_nbytes = 0


class CountsInFourBytes(PrefixedFramer):
    def resume(self, offset: int) -> None:
        super().resume(offset & 0x7FFFFFFF)


class ForgetsDamage(PrefixedFramer):
    def feed(self, block: Bytes, headroom: int, most_rows: int = 100) -> Iterator[VarColumn]:
        return iter(()) if self._failure else super().feed(block, headroom, most_rows)

    def finish(self) -> Iterator[VarColumn]:
        return iter(()) if self._failure else super().finish()


def prefixed_array(*records: bytes) -> Bytes:
    return np.frombuffer(prefixed(records), np.uint8)


def format_of(framer: type[CuttingFramer]) -> Format:
    class Broken(PrefixedFormat):
        kind = framer

    return Broken()


def suite_of(description: Format) -> FormatSuite:
    class Suite(TestOwnFormat):
        pass

    Suite.description = description
    return Suite()


MISTAKES: list[tuple[type[CuttingFramer], Callable[[FormatSuite], None]]] = [
    (DropsTheRestOfABlock, FormatSuite.test_records_are_the_same_however_the_stream_is_cut),
    (LosesTheLastRecord, FormatSuite.test_damage_is_reported_once_all_records_before_it_were_given),
    (LosesTheLastRecord, FormatSuite.test_skipped_damage_does_not_depend_on_blocks),
    (RepeatsRecords, FormatSuite.test_a_stream_truncated_at_any_byte_yields_the_records_before),
    (ForgetsThePrefix, FormatSuite.test_a_reader_starts_at_any_record),
    (CountsInFourBytes, FormatSuite.test_offsets_beyond_two_gibibytes_are_exact),
    (ForgetsDamage, FormatSuite.test_damage_is_not_forgotten),
]


@pytest.mark.parametrize(("framer", "finds"), MISTAKES)
def test_a_mistake_is_found(framer: type[CuttingFramer], finds: Callable[[FormatSuite], None]) -> None:
    with pytest.raises(AssertionError):
        finds(suite_of(format_of(framer)))


def test_errors_of_other_classes_are_found() -> None:
    suite = suite_of(format_of(FailsAtTheEnd))
    for test in (
        suite.test_a_stream_truncated_at_any_byte_yields_the_records_before,
        suite.test_any_changed_byte_leads_to_records_or_to_an_error_of_the_data,
    ):
        with pytest.raises(IndexError):
            test()


class Unequal(PrefixedFormat):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def test_a_description_without_equality_is_found() -> None:
    with pytest.raises(AssertionError):
        suite_of(Unequal()).test_description_is_hashable_and_survives_pickling()


class NeverResumes(PrefixedFramer):
    def offset_of(self, start: int) -> int | None:
        return None


def test_formats_that_must_be_read_from_the_start_skip_the_tests_of_later_starts() -> None:
    suite = suite_of(format_of(NeverResumes))
    for test in (suite.test_a_reader_starts_at_any_record, suite.test_offsets_beyond_two_gibibytes_are_exact):
        with pytest.raises(SkipTest, match="no reader of this format"):
            test()


class NoEncoder(FormatSuite):
    description: ClassVar[Format] = PrefixedFormat()
    stream = STREAM
    records = RECORDS


def test_without_an_encoder_no_large_file_is_made() -> None:
    for test in (
        NoEncoder().test_a_resumed_run_reads_no_consumed_data,
        NoEncoder().test_the_first_record_needs_no_whole_file,
    ):
        with pytest.raises(SkipTest, match="encode"):
            test()


class StartsOver(PrefixedFramer):
    """Knows the places of the first records alone."""

    def offset_of(self, start: int) -> int | None:
        offset = super().offset_of(start)
        return offset if offset is not None and offset < 100 else None


def test_a_reader_that_starts_over_is_found() -> None:
    with pytest.raises(AssertionError, match="read the start of the file"):
        suite_of(format_of(StartsOver)).test_a_resumed_run_reads_no_consumed_data()


def test_the_suite_of_framers_needs_no_files() -> None:
    assert not [name for name in vars(FramingSuite) if "file" in name]
