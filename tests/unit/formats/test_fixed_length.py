"""Fixed-length records: arguments, and a footer that is only known at the end."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.formats.fixed_length import MAX_FOOTER_NBYTES, FixedLengthFormat
from aiostream_data.testing.formats import read_blocks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"record_nbytes": 0}, "record_nbytes must be at least 1, got 0"),
        ({"record_nbytes": 1, "header_nbytes": -1}, "header_nbytes must be at least 0, got -1"),
        ({"record_nbytes": 1, "footer_nbytes": MAX_FOOTER_NBYTES + 1}, "footer_nbytes must be from 0 to"),
    ],
)
def test_arguments_are_checked_when_built(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        FixedLengthFormat(**arguments)


def test_bytes_that_may_be_the_footer_are_held_back() -> None:
    framer = FixedLengthFormat(record_nbytes=2, footer_nbytes=2).framer("memory://x")
    (column,) = framer.feed(np.frombuffer(b"aabb", np.uint8), 0)
    assert len(column) == 1
    (column,) = framer.feed(np.frombuffer(b"cc", np.uint8), 0)
    assert column.elements() == [b"bb"]
    assert not list(framer.finish())


def test_object_of_header_and_footer_alone_has_no_records() -> None:
    assert read_blocks(FixedLengthFormat(record_nbytes=9, header_nbytes=2, footer_nbytes=3), b"hhfff") == ([], None)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"h", "the stream ends 1 bytes before the end of its header"),
        (b"hhff", "the stream ends 1 bytes before the end of its footer"),
        (
            b"hhaaabfff",
            "1 bytes remain after the last 3-byte record; check record_nbytes, header_nbytes and footer_nbytes",
        ),
    ],
)
def test_left_over_bytes_are_an_error_that_says_which(stream: bytes, reason: str) -> None:
    description = FixedLengthFormat(record_nbytes=3, header_nbytes=2, footer_nbytes=3)
    _, error = read_blocks(description, stream)
    assert error is not None
    assert error.reason == reason
