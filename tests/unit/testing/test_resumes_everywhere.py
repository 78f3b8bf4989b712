"""The resume helper accepts a data set that resumes, and finds every way not to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.state_size import allowed_state_nbytes

State = dict[str, Any]
Open = Callable[[list[Any], State | None, int | None], "Model"]
ROWS = 6


class Model:
    """A loader of rows in memory, whose state is the number of the next one."""

    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        self.rows = rows
        self.at = 0 if state is None else int(state["at"])
        self.seed = seed if state is None else state["seed"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        while self.at < len(self.rows):
            row = self.rows[self.at]
            self.at += 1
            yield row

    def state_dict(self) -> State:
        return {"at": self.at, "seed": self.seed}


@dataclass
class Modelled:
    """A data set of ``kind`` loaders; counts how it was opened."""

    kind: type[Model]
    rows: list[Any]
    plan: Any = Dataset.range(1).plan
    opened: int = 0

    def open(self, state: State | None = None, seed: int | None = None) -> Model:
        self.opened += 1
        return self.kind(self.rows, state, seed)

    def __reduce__(self) -> Any:
        raise TypeError("so that the helper counts on this very object")


def modelled(kind: type[Model], rows: list[Any] | None = None) -> Any:
    return Modelled(kind, list(range(ROWS)) if rows is None else rows)


def test_every_element_is_a_place_to_resume_from() -> None:
    dataset = modelled(Model)
    report = resumes_everywhere(dataset, open_options={"seed": 3})
    assert (report.elements, report.states) == (ROWS, ROWS + 2)  # none, each, and the end
    assert report.resumes == dataset.opened - 1
    assert report.largest_state_nbytes == len('{"at": 0, "seed": 3}')
    assert 0 <= report.slowest_state_s < 1


def test_an_empty_data_set_resumes() -> None:
    assert resumes_everywhere(modelled(Model, [])).elements == 0


def test_every_leaves_places_out_but_not_the_first_and_the_last() -> None:
    report = resumes_everywhere(modelled(Model), every=4)
    assert report.states == 5  # 0, 1, 4, 6, and the end


def test_of_a_data_set_that_never_ends_only_the_first_elements_are_compared() -> None:
    report = resumes_everywhere(modelled(Model, list(range(1000))), max_elements=5)
    assert (report.elements, report.states) == (5, 6)


class Skips(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.at += self.at == 2


class Repeats(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.at -= self.at == 4


class LosesTheLast(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows if state is None else rows[:-1], state, seed)


class StartsAgainAtTheEnd(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.at %= max(1, len(rows))


class ForgetsItsSeed(Model):
    def __iter__(self) -> Iterator[Any]:
        return ((self.seed, row) for row in super().__iter__())

    def state_dict(self) -> State:
        return {"at": self.at, "seed": None}


class ForgetsWhenSavedAtOnce(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.first = self.at

    def state_dict(self) -> State:
        return {"at": 0 if self.at == self.first else self.at, "seed": self.seed}


class ForgetsWhenResumedTwice(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.resumed = state is not None
        self.first = self.at

    def state_dict(self) -> State:
        at = self.at - self.first if self.resumed and self.at > self.first else self.at
        return {"at": at, "seed": self.seed}


class GivesOtherTypes(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows if state is None else [np.int64(row) for row in rows], state, seed)


class SharesItsState(Model):
    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        super().__init__(rows, state, seed)
        self.state: State = {}

    def state_dict(self) -> State:
        self.state.update(super().state_dict())
        return self.state


class IsNotJson(Model):
    def state_dict(self) -> State:
        return {"at": np.int64(self.at), "seed": self.seed}


class IsLarge(Model):
    def state_dict(self) -> State:
        return super().state_dict() | {"rows": "x" * 5000}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Skips, "saved after 2 more (of 6) and resumed: element 0 of the rest differs: element: expected 2, found 3"),
        (Repeats, " (of 6) and resumed: element 0 of the rest differs: element: expected 4, found 3"),
        (LosesTheLast, "saved before the first element (of 6) and resumed: the rest ends after 5 elements"),
        (StartsAgainAtTheEnd, "(of 6) and resumed: the rest has 1 elements; 0 should not follow"),
        (ForgetsItsSeed, "element[0]: expected int 3, found NoneType None"),
        (ForgetsWhenSavedAtOnce, "resumed, and saved after 0 more (of 6) and resumed: element 0 of the rest"),
        (ForgetsWhenResumedTwice, "saved after 1 elements, resumed, and saved after 2 more (of 6) and resumed: "),
        (GivesOtherTypes, "expected int 0, found int64 0"),
        (SharesItsState, "saved before the first element: the state has changed since it was taken"),
        (IsNotJson, "saved before the first element: the state is not JSON"),
        (IsLarge, "the state is 5032 bytes of JSON, over 4096"),
    ],
)
def test_what_does_not_resume_is_named(kind: type[Model], message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        resumes_everywhere(modelled(kind), open_options={"seed": 3})


class AnyOrder(Model):
    """Gives what is left backwards once it was resumed."""

    def __init__(self, rows: list[Any], state: Mapping[str, Any] | None, seed: int | None) -> None:
        at = 0 if state is None else state["at"]
        super().__init__(rows if state is None else [*rows[:at], *rows[at:][::-1]], state, seed)


def test_an_order_that_differs_is_refused_unless_it_may_differ() -> None:
    with pytest.raises(AssertionError, match="differs"):
        resumes_everywhere(modelled(AnyOrder), twice=False)
    assert resumes_everywhere(modelled(AnyOrder), twice=False, unordered=True).elements == ROWS


@pytest.mark.parametrize(
    ("kind", "message"), [(Skips, "1 of 6 elements were lost, such as 2"), (Repeats, "1 of 6 elements were given too")]
)
def test_without_an_order_every_element_is_still_given_once(kind: type[Model], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        resumes_everywhere(modelled(kind), unordered=True)


def test_without_an_order_there_must_be_an_end() -> None:
    with pytest.raises(ValueError, match="more than 5 elements"):
        resumes_everywhere(modelled(Model, list(range(9))), unordered=True, max_elements=5)


def test_how_elements_compare_can_be_given() -> None:
    assert resumes_everywhere(modelled(GivesOtherTypes), compare=lambda a, b: bool(a == b)).elements == ROWS


def test_a_state_may_hold_the_ids_of_rows_that_are_held_back() -> None:
    plan = Dataset.range(9).shuffle(100).batch(4).shuffle(10).prefetch(1000).plan
    assert allowed_state_nbytes(plan) == 4096 + 8 * (100 + 4 + 40)
    scanned = Dataset.range(9).scan(lambda state, row: (state, row), 0).unique()
    assert allowed_state_nbytes(scanned.plan) == 4096 + 2 * 16384
