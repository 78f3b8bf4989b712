"""Functions called in the interpreter of the thread that calls them, in real ones where this Python has them."""

from __future__ import annotations

import asyncio
import sys
import threading
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data.errors import RecordError, StageBuildError
from aiostream_data.executors import interpreter
from aiostream_data.executors.interpreter import InterpreterExecutor

_HAS_THEM = sys.version_info >= (3, 14)


class StandIn:
    """Does in this interpreter what a subinterpreter would do in its own."""

    alive = 0

    def __init__(self) -> None:
        self._main: dict[str, Any] = {}
        StandIn.alive += 1

    def prepare_main(self, **names: Any) -> None:
        self._main.update(names)

    def exec(self, code: str) -> None:
        exec(code, self._main)

    def close(self) -> None:
        StandIn.alive -= 1


@pytest.fixture(params=["real", "stand-in"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> InterpreterExecutor:
    if request.param == "real":
        if not _HAS_THEM:
            pytest.skip("this Python has no subinterpreters for programs")
        return InterpreterExecutor(2, "test")
    module: Any = ModuleType("concurrent.interpreters")
    module.create, module.create_queue = StandIn, SimpleQueue
    monkeypatch.setitem(sys.modules, "concurrent.interpreters", module)
    monkeypatch.setattr(interpreter, "_FIRST_VERSION", (3, 0))
    return InterpreterExecutor(2, "test")


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> None:
    raise KeyError(number)


def a_lock() -> Any:
    return threading.Lock()


def test_calls_give_results_and_errors_of_the_originals_type(executor: InterpreterExecutor) -> None:
    doubled, failing, lock = executor.remote(double), executor.remote(fail), executor.remote(a_lock)

    def work(numbers: list[int]) -> list[int]:
        return [doubled(number) for number in numbers]

    async def main() -> None:
        outcomes = await asyncio.gather(*(executor.submit(work, [first, first + 1]) for first in range(20)))
        assert [outcome.value for outcome in outcomes] == [[2 * first, 2 * first + 2] for first in range(20)]
        error = (await executor.submit(failing, 3)).error
        assert isinstance(error, RecordError)
        assert isinstance(error, KeyError)
        assert "in fail" in error.worker_traceback
        assert isinstance((await executor.submit(lock)).error, TypeError)
        assert (await executor.submit(doubled, 4)).value == 8

    with leaves_nothing():
        asyncio.run(main())
        assert executor.close(2.0)
    assert StandIn.alive == 0


def test_a_remote_function_looks_like_the_one_it_stands_for(executor: InterpreterExecutor) -> None:
    remote = executor.remote(double)
    assert (remote.__qualname__, remote.__code__) == ("double", double.__code__)
    assert executor.close(2.0)


@pytest.mark.skipif(_HAS_THEM, reason="this Python has them")
def test_there_are_none_before_python_3_14() -> None:
    with pytest.raises(StageBuildError, match=r"3\.14"):
        InterpreterExecutor(1, "test")
