"""A source that can be read only once is never silently empty the second time."""

from __future__ import annotations

import pytest

import aiostream_data as asd
from aiostream_data.errors import StageBuildError


def one_shot() -> asd.Dataset[int]:
    return asd.Dataset.from_iterable(number for number in range(3))


def test_a_one_shot_iterator_is_read_once() -> None:
    assert list(one_shot()) == [0, 1, 2]


def test_r11_a_one_shot_generator_is_refused_where_two_epochs_are_asked_for() -> None:
    with pytest.raises(StageBuildError, match=r"repeat\(\) reads its source more than once.*generator"):
        one_shot().repeat(2)
    with pytest.raises(StageBuildError, match="read only once"):
        one_shot().map(lambda x: x).batch(2).repeat()
    assert list(one_shot().repeat(1)) == [0, 1, 2]


def test_r11_a_one_shot_generator_may_repeat_behind_a_cache() -> None:
    assert list(one_shot().cache().repeat(2)) == [0, 1, 2, 0, 1, 2]


def test_r11_iterating_a_one_shot_data_set_again_is_refused_instead_of_empty() -> None:
    dataset = one_shot()
    assert list(dataset) == [0, 1, 2]
    with pytest.raises(StageBuildError, match="iterating again"):
        list(dataset)


def test_r11_a_one_shot_generator_opened_again_through_another_chain_is_refused_instead_of_empty() -> None:
    dataset = one_shot()
    assert list(dataset.take(1)) == [0]
    with pytest.raises(StageBuildError, match="read only once"):
        list(dataset.map(lambda x: x))


def test_r11_a_one_shot_generator_that_stands_twice_in_a_chain_is_refused() -> None:
    dataset = one_shot()
    with pytest.raises(StageBuildError, match="read only once"):
        list(dataset.concatenate(dataset))


def test_r11_calling_the_generator_function_too_early_is_explained() -> None:
    with pytest.raises(StageBuildError, match="without calling it"):
        asd.Dataset.from_generator(iter([1]))  # type: ignore[arg-type]
