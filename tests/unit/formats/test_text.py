"""Lines of text: encodings, byte order marks, limits."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.text import TextFormat
from aiostream_data.testing.formats import read_blocks


def test_text_is_kept_as_bytes_of_the_block_and_called_str() -> None:
    block = np.frombuffer(b"one\ntwo\n", np.uint8)
    (column,) = TextFormat().framer("memory://x").feed(block, 0)
    assert column.kind == "str"
    assert np.shares_memory(column.values, block)


def test_a_line_without_newline_comes_at_the_end_of_the_stream() -> None:
    framer = TextFormat().framer("memory://x")
    assert not list(framer.feed(np.frombuffer(b"no end", np.uint8), 0))
    assert not list(framer.feed(np.frombuffer(b" yet", np.uint8), 0))
    (column,) = framer.finish()
    assert column.elements() == ["no end yet"]
    assert not list(TextFormat().framer("memory://x").finish())


def test_stream_of_a_byte_order_mark_alone_has_no_lines() -> None:
    assert read_blocks(TextFormat(), b"\xef\xbb\xbf") == ([], None)
    assert read_blocks(TextFormat(), b"\xef\xbb\xbf\n") == ([""], None)


def test_byte_order_mark_is_dropped_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert read_blocks(TextFormat(), mark + mark + b"a\n" + mark + b"b") == (["\ufeffa", "\ufeffb"], None)


def test_invalid_bytes_are_reported_with_their_line_and_their_place_in_it() -> None:
    _, error = read_blocks(TextFormat(), b"good\nbad: \xff\n", [2])
    assert error is not None
    assert error.offset == 5
    assert error.reason.startswith("not valid utf-8 at byte 10: invalid start byte; pass the encoding")


def test_character_cut_by_the_end_of_a_line_is_invalid() -> None:
    assert read_blocks(TextFormat(), b"ok\n\xe2\x82\n\xac\n").records == ["ok"]


def test_ascii_refuses_what_is_not() -> None:
    assert read_blocks(TextFormat(encoding="ascii"), b"a\nb\x80\n").records == ["a"]


def test_limit_on_lines_is_exact_and_counts_neither_mark_nor_line_end() -> None:
    description = TextFormat(max_line_nbytes=4)
    for end in ("", "\n", "\r\n"):
        stream = ("\ufeffabcd" + end).encode()
        assert read_blocks(description, stream, [1] * len(stream)) == (["abcd"], None)
        assert read_blocks(description, ("abcde" + end).encode(), [1] * 9).error is not None


def test_endless_line_is_given_up_early() -> None:
    framer = TextFormat(max_line_nbytes=1000).framer("memory://x")
    block = np.full(501, ord("z"), np.uint8)
    assert not list(framer.feed(block, 0))
    assert not list(framer.feed(block, 0))
    with pytest.raises(CorruptRecordError, match="longer than max_line_nbytes=1000"):
        list(framer.feed(block, 0))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "gbk", "big5", "utf-8-sig", "koi8-r"])
def test_encodings_that_extend_ascii_are_accepted(encoding: str) -> None:
    assert read_blocks(TextFormat(encoding=encoding), b"a\r\nb").records == ["a", "b"]


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32-le", "utf-7", "cp037", "unicode_escape", "hex", "no-such", "idna"]
)
def test_encodings_where_a_newline_byte_is_not_a_newline_are_refused(encoding: str) -> None:
    with pytest.raises(PlanError, match="compatible with ASCII"):
        TextFormat(encoding=encoding)


def test_line_limit_must_be_positive() -> None:
    with pytest.raises(PlanError, match="max_line_nbytes must be at least 1, got 0"):
        TextFormat(max_line_nbytes=0)
