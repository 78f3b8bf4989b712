"""Values of user functions in a state: restored as they were, or not stored at all."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from aiostream_data._engine.resume.user_values import MAX_NBYTES, restored, sealed, stored, unsealed
from aiostream_data.errors import DamagedStateError
from aiostream_data.state_fields import Part
from aiostream_data.testing.comparing import same

VALUES: list[Any] = [
    *(None, True, 0, -1, 2**60, -(2**90), 1.5, -0.0, float("inf"), "text", "\ud800", b"\x00\xff", "", ()),
    *([1, [2, (3,)]], {"a": 1, 2: (b"x", None)}, {(1, 2): {}}, np.float32(0.1), np.int64(7), np.str_("x"), np.bool_(1)),
    *(np.arange(6).reshape(2, 3), np.array([1.5, np.nan]), np.array(3), np.array([], np.int8), np.array(["a", "bc"])),
    np.array(["2026-01-02"], "M8[D]"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_from_json_with_its_types(value: Any) -> None:
    form = stored(value)
    assert form is not None
    back = unsealed(Part(json.loads(json.dumps(sealed(form[0]))), "state"))
    assert same(back, value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_not_a_number_comes_back() -> None:
    form = stored(float("nan"))
    assert form is not None
    assert repr(restored(json.loads(json.dumps(form[0])))) == "nan"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ONE: list[int] = [1]

OTHERS: list[Any] = [
    *({1, 2}, OrderedDict(), object, 1j, np.ma.masked_array([1]), np.array([None]), nested(40), 1 << 5000),
    *([ONE, ONE], "x" * MAX_NBYTES, [0] * MAX_NBYTES, np.zeros(MAX_NBYTES + 1, np.int8), bytes(MAX_NBYTES)),
]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: f"{value!r:.30}")
def test_a_value_that_would_come_back_changed_is_not_stored(value: Any) -> None:
    assert stored(value) is None


def test_a_value_that_contains_itself_is_not_stored() -> None:
    value: list[Any] = []
    value.append(value)
    assert stored(value) is None


@pytest.mark.parametrize("damage", [{"value": 4}, {"hash": "0"}, {"hash": None}, {"value": ["x"]}])
def test_a_damaged_value_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(DamagedStateError):
        unsealed(Part(sealed(3) | damage, "state"))


@pytest.mark.parametrize(
    "form",
    [{}, [], ["x"], ["array"], ["array", "<i8", "AA==", [9]], ["dict", [["list"], 1]], ["float", "x"], nested(40)],
)
def test_a_form_that_nothing_is_stored_as_is_refused(form: Any) -> None:
    with pytest.raises(DamagedStateError):
        unsealed(Part(sealed(form), "state"))


@pytest.mark.parametrize(
    "value",
    [
        "\x00" * 2000,
        "é" * 2600,
        [True] * 1000,
        list(range(900)),
        np.zeros(1500),
        bytes(12_000),
        {n: (n,) for n in range(300)},
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_the_text_of_a_stored_value_is_small(value: Any) -> None:
    form = stored(value)
    assert form is not None
    assert len(json.dumps(form[0])) <= MAX_NBYTES
