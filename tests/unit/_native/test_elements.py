"""Splitting elements into columns and building dicts: the kernels and their twins."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NoReturn

import pytest

from aiostream_data._native import elements_py

elements = pytest.importorskip("aiostream_data._native.elements")
both = pytest.mark.parametrize("kernels", [elements, elements_py], ids=["native", "python"])


@both
def test_dicts_are_split_in_the_order_of_the_names(kernels: Any) -> None:
    rows = [{"a": 1, "b": "x"}, {"b": "y", "a": 2}]
    assert kernels.dict_columns(rows, ("b", "a")) == [["x", "y"], [1, 2]]
    assert kernels.dict_columns([], ("a",)) == [[]]
    assert kernels.dict_columns([{}, {}], ()) == []


@both
@pytest.mark.parametrize(
    "odd", [{"a": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, OrderedDict(a=1, b=2), [1, 2], None]
)
def test_other_elements_are_not_split_as_dicts(kernels: Any, odd: Any) -> None:
    assert kernels.dict_columns([{"a": 1, "b": 2}, odd], ("a", "b")) is None


@both
def test_tuples_are_split_by_position(kernels: Any) -> None:
    assert kernels.tuple_columns([(1, "x"), (2, "y")], 2) == [[1, 2], ["x", "y"]]
    assert kernels.tuple_columns([], 2) == [[], []]
    assert kernels.tuple_columns([()], 0) == []


@both
@pytest.mark.parametrize("odd", [(1,), (1, 2, 3), [1, 2], {"a": 1}, None, type("Pair", (tuple,), {})((1, 2))])
def test_other_elements_are_not_split_as_tuples(kernels: Any, odd: Any) -> None:
    assert kernels.tuple_columns([(1, 2), odd], 2) is None


@both
def test_dicts_are_built_from_columns(kernels: Any) -> None:
    built = kernels.dicts_of(("b", 1), [["x", "y"], [None, 2.5]])
    assert built == [{"b": "x", 1: None}, {"b": "y", 1: 2.5}]
    assert [list(each) for each in built] == [["b", 1], ["b", 1]]
    assert kernels.dicts_of(("a",), [[]]) == []


@both
@pytest.mark.parametrize("wrong", [(("a", "b"), [[1]]), (("a", "b"), [[1], [1, 2]]), ((), [])])
def test_columns_that_do_not_fit_the_names_are_refused(kernels: Any, wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"one column is needed|different lengths"):
        kernels.dicts_of(*wrong)


class Key(str):
    """Key whose comparison fails."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> NoReturn:
        raise RuntimeError("cannot compare")


@both
def test_the_error_of_a_key_is_raised(kernels: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot compare"):
        kernels.dict_columns([{Key("name"): 1}], (Key("name") + "",))
