"""Values are described by their content, alike in every process."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data.plan.values import MAX_HASHED_NBYTES, MAX_TEXT, array_text, dataclass_values, text_of


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Box:
    width: int
    height: int = 3
    tags: list[str] = field(default_factory=list)


class Opaque:
    def __init__(self) -> None:
        self.size = 3
        self._lock = object()


DIFFERENT: list[Any] = [
    None, True, False, 1, 1.0, -0.0, 0.0, 1j, "1", b"1", "None", (), [], {}, (1,), [1], {1}, {1: 2}, {"1": 2},
    range(3), slice(3), Color.RED, np.float32(1), np.float64(1), np.int64(1), np.dtype(">i4"), np.dtype("i4"), int,
    np.arange(3), np.arange(3.0), np.arange(4), np.zeros((2, 3)), np.zeros((3, 2)), np.array(["a", b"a"], object),
    np.array([b"a", "a"], object), Box(1), Box(2), Box(1, 4), Box(1, 3, ["a"]), "x" * 500, "x" * 501, b"x" * 500,
    list(range(1000)), list(range(999)), ["a", "bc"], ["ab", "c"], len, np.array([1, 2], "M8[s]"), Opaque(),
]  # fmt: skip


def test_different_values_have_different_texts() -> None:
    texts = [text_of(value) for value in DIFFERENT]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: type(value).__name__)
def test_texts_are_short_and_name_no_address(value: Any) -> None:
    text = text_of(value)
    assert len(text) <= MAX_TEXT
    assert "0x" not in text
    assert not text.startswith("#")


def test_equal_content_has_equal_text() -> None:
    assert text_of({"a": 1, "b": [2]}) == text_of({"b": [2], "a": 1})
    assert text_of({"x", "y", "z"}) == text_of({"z", "y", "x"})
    assert text_of(np.arange(10)) == text_of(np.arange(20)[::2] // 2)
    assert text_of(Path("a") / "b") == text_of("a/b")
    assert text_of(Opaque()) == text_of(Opaque())


def test_defaults_of_a_dataclass_are_left_out() -> None:
    assert dataclass_values(Box(1)) == {"width": 1}
    assert text_of(Box(1)) == "Box(width=1)"


def test_a_value_that_holds_itself_is_described() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert text_of(endless) == "[[[[[[[[[list]]]]]]]]]"


def test_a_change_anywhere_in_an_array_of_moderate_size_shows() -> None:
    rows = np.zeros(100_000, np.int16)
    before = array_text(rows)
    rows[77_777] = 1
    assert array_text(rows) != before


def test_a_large_array_is_sampled_whatever_its_layout() -> None:
    values = np.arange(MAX_HASHED_NBYTES // 4, dtype=np.int64).reshape(2, -1)
    text = array_text(values)
    assert array_text(np.asfortranarray(values)) == text
    values[:, ::1000] += 1
    assert array_text(values) != text
