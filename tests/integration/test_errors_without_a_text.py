"""Errors of the user whose ``repr()`` or ``str()`` fails arrive as they are, after the rows before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiostream_data import Dataset


class NoReprError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class NoTextError(NoReprError):
    def __str__(self) -> str:
        raise RuntimeError("no str")


def failing(error: type[Exception]) -> Callable[[int], int]:
    def function(number: int) -> int:
        if number == 5:
            raise error("the cause")
        return number

    return function


def awaited(dataset: Dataset[int], error: type[Exception]) -> Dataset[Any]:
    function = failing(error)

    async def call(number: int) -> int:
        return function(number)

    return dataset.map(call)


def generated(dataset: Dataset[int], error: type[Exception]) -> Dataset[Any]:
    def generate() -> Iterator[int]:
        yield from map(failing(error), range(10))

    return Dataset.from_generator(generate)


CHAINS: dict[str, Callable[[Dataset[int], type[Exception]], Dataset[Any]]] = {
    "map": lambda dataset, error: dataset.map(failing(error)),
    "map before another": lambda dataset, error: dataset.map(failing(error)).map(int, executor="inline"),
    "coroutine": awaited,
    "flat_map": lambda dataset, error: dataset.flat_map(lambda number: [failing(error)(number)]),
    "generator": generated,
}


@pytest.mark.parametrize("error", [NoReprError, NoTextError])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_rows_before_the_error_arrive_and_then_the_error_itself(chain: str, error: type[Exception]) -> None:
    rows: list[int] = []
    with pytest.raises(error) as raised, CHAINS[chain](Dataset.range(10), error).open() as loader:
        rows.extend(map(int, loader))
    assert rows == [0, 1, 2, 3, 4]
    assert raised.value.args == ("the cause",)
