"""Whole objects as records."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.whole_file import WholeFileFormat


def test_object_in_one_block_is_not_copied() -> None:
    framer = WholeFileFormat().framer("memory://x")
    block = np.frombuffer(b"??whole object", np.uint8)
    for piece, headroom in ((block[:2], 2), (block, 2), (block[:0], 0)):
        assert not list(framer.feed(piece, headroom))
    (column,) = framer.finish()
    assert column.elements() == [b"whole object"]
    assert np.shares_memory(column.values, block)


def test_object_that_is_too_long_is_given_up_before_it_is_held() -> None:
    framer = WholeFileFormat(max_record_nbytes=10).framer("memory://x")
    list(framer.feed(np.zeros(10, np.uint8), 0))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="longer than max_record_nbytes=10"):
            list(framer.feed(np.zeros(1, np.uint8), 0))


def test_limit_must_not_be_negative() -> None:
    with pytest.raises(PlanError, match="max_record_nbytes must be at least 0, got -1"):
        WholeFileFormat(max_record_nbytes=-1)
