"""Elements are described by what they are, whatever they do when they are looked at."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from aiostream_data._engine.failures.element_summary import MAX_CHARACTERS, forget_calls, note_call, summary
from aiostream_data.rows.object_nbytes import object_nbytes


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    __str__ = __repr__


class NoShape:
    dtype = "float32"

    @property
    def shape(self) -> Any:
        raise RuntimeError("not loaded")


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Example:
    image: Any
    label: int


def holding_itself() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def holding_itself_twice() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["a"] = found["b"] = found
    return found


DESCRIBED: list[tuple[Callable[[], Any], str]] = [  # made by functions: pytest looks at parameters
    (lambda: {"image": np.zeros((2, 3), np.uint8), "name": "secret"}, "{image: uint8[2, 3], name: str[6]}"),
    (lambda: (1, 2.5, None, True), "(1, 2.5, None, True)"),
    (lambda: [b"secret", [1]], "[bytes[6], [1]]"),
    (lambda: Point(1, b"secret"), "Point(x: 1, y: bytes[6])"),
    (lambda: Example(np.zeros(3), 7), "Example(image: float64[3], label: 7)"),
    (lambda: Example, "type"),
    (lambda: list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
    (lambda: 10**5000, "int of 16610 bits"),
    (Hostile, "Hostile"),
    (lambda: {"a": Hostile(), "b": 1}, "{a: Hostile, b: 1}"),
    (lambda: {Hostile(): 1}, "{Hostile: 1}"),
    (NoShape, "NoShape"),
    (lambda: {"k" * 100: 1}, "{" + "k" * 60 + "...: 1}"),
    (holding_itself, "[1, [1, [1, [1, [1, [1, list[2]]]]]]]"),
    (lambda: {1, 2}, "set"),
    (object, "object"),
]


@pytest.mark.parametrize(("make", "expected"), DESCRIBED, ids=[expected[:20] for _, expected in DESCRIBED])
def test_an_element_is_described_by_types_shapes_and_sizes(make: Callable[[], Any], expected: str) -> None:
    assert summary(make()) == expected


@pytest.mark.parametrize("make", [lambda: {f"k{i}": i for i in range(10_000)}, holding_itself_twice])
def test_a_description_is_short_however_large_the_element(make: Callable[[], Any]) -> None:
    assert len(summary(make())) <= MAX_CHARACTERS + 3


def test_only_so_many_keys_are_named() -> None:
    assert summary(dict.fromkeys(range(40), 0)).endswith("31: 0, ...}")


@pytest.mark.parametrize("make", [Hostile, NoShape, holding_itself, holding_itself_twice])
def test_the_size_of_any_element_can_be_told(make: Callable[[], Any]) -> None:
    assert object_nbytes(make()) > 0


def nested(depth: int) -> Any:
    found: Any = b"12345"
    for level in range(depth):
        found = {"x": found} if level % 2 else [found]
    return found


def test_the_size_of_a_nested_element_is_that_of_its_parts() -> None:
    assert object_nbytes([b"12", {"a": [b"3", (b"45",)], "b": {}}, ()]) == 5
    assert object_nbytes(nested(200)) == 5


def test_the_size_of_an_element_that_holds_itself_can_be_told_on_a_thread_with_a_small_stack() -> None:
    """Without recursion: the limit of Python's recursion, however high, says nothing about the stack of a thread."""
    program = (
        "import sys, threading\n"
        "from aiostream_data.rows.object_nbytes import object_nbytes\n"
        "element = [1]\n"
        "element.append({'self': element})\n"
        "sys.setrecursionlimit(10**6)\n"
        "threading.stack_size(64 << 10)\n"
        "thread = threading.Thread(target=lambda: print(object_nbytes(element) > 0))\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_of_an_error_that_many_calls_raise_the_notes_are_those_of_the_last_one_told() -> None:
    error = ValueError("the service is gone")
    error.add_note("the user's own")
    for record in range(3):
        note_call(error, "ask (train.py:3)", f"range record {record}", record)
    assert error.__notes__ == ["the user's own", "function: ask (train.py:3)", "record: range record 2", "element: 2"]
    forget_calls(error)
    assert error.__notes__ == ["the user's own"]


def test_the_notes_of_another_function_stay() -> None:
    error = ValueError("inner")
    note_call(error, "inner (train.py:3)", "range record 1", 1)
    note_call(error, "outer (train.py:9)", "range record 5", 5)
    assert [note for note in error.__notes__ if note.startswith("record")] == [
        "record: range record 1",
        "record: range record 5",
    ]
