"""One element at a time in the caller's thread: prints come in order, debuggers work, and the elements are the same."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing
from user_functions import double, draw

import aiostream_data as asd
from aiostream_data.errors import LoaderClosedError, RecordError
from aiostream_data.failing.policies import Skip
from aiostream_data.testing.comparing import same

TWENTY = asd.Dataset.range(20)


async def double_later(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def count_later() -> AsyncIterator[int]:
    for number in range(20):
        await asyncio.sleep(0)
        yield number


def fail_on_seven(number: int) -> int:
    if number == 7:
        raise ValueError("seven is refused")
    return number


def shards(folder: Path) -> str:
    for shard in range(3):
        with asd.TFRecordWriter(folder / f"{shard}.tfrecord") as writer:
            for row in range(11):
                writer.write(f"{shard}:{row}".encode())
    return str(folder / "*.tfrecord")


CHAINS: dict[str, Callable[[Path], asd.Dataset[Any]]] = {
    "map": lambda _: TWENTY.map(double),
    "concurrent map": lambda _: TWENTY.map(double, concurrency=4),
    "process map": lambda _: TWENTY.map(double, executor="process", concurrency=2),
    "rng": lambda _: TWENTY.map(draw, executor="process").map(lambda number, *_: number),
    "drawn": lambda _: TWENTY.map(draw),
    "coroutine": lambda _: TWENTY.map(double_later, concurrency=8),
    "batched": lambda _: TWENTY.map(lambda rows: 2 * rows, batched=True),
    "filter": lambda _: TWENTY.filter(lambda number: number % 3 == 0),
    "skip": lambda _: TWENTY.map(fail_on_seven, on_error=Skip()),
    "flat_map": lambda _: TWENTY.flat_map(lambda number: range(number % 4)),
    "interleave": lambda _: TWENTY.interleave(lambda n: asd.Dataset.range(n).map(double), cycle_length=3),
    "async generator": lambda _: asd.Dataset.from_generator(count_later).batch(3),
    "shuffle": lambda _: TWENTY.shuffle(5).batch(4).repeat(3),
    "epochs": lambda _: asd.Dataset.from_generator(lambda: iter(range(5))).map(double).shuffle(3).repeat(3),
    "cache": lambda _: TWENTY.map(double).cache().repeat(2),
    "zip": lambda _: asd.Dataset.zip(TWENTY, TWENTY.map(double)).map(lambda a, b: a + b),
    "concatenate": lambda _: TWENTY.concatenate(TWENTY.map(double)).skip(3).take(30),
    "mixture": lambda _: asd.Dataset.sample_from([TWENTY, TWENTY.map(double)], [0.7, 0.3]),
    "windows": lambda _: TWENTY.window(4, shift=2).prefetch(3),
    "unbatch": lambda _: TWENTY.batch(6).unbatch().enumerate().prefetch(2),
    "device": lambda _: TWENTY.map(double).batch(3).to_device("cpu"),
    "files": lambda folder: asd.Dataset.from_tfrecord(shards(folder), cycle_length=2).map(len).batch(2),
    "shuffled files": lambda folder: asd.Dataset.from_tfrecord(shards(folder), shuffle_shards=True).shuffle().batch(4),
    "subprocess": lambda _: TWENTY.map(double).in_subprocess(),
    "subprocesses": lambda _: TWENTY.map(double).batch(2).in_subprocess(2).map(lambda rows: rows + 1),
}


@pytest.mark.parametrize("build", CHAINS.values(), ids=CHAINS)
def test_elements_and_their_order_are_those_of_any_other_run(
    build: Callable[[Path], asd.Dataset[Any]], tmp_path: Path
) -> None:
    dataset = build(tmp_path)
    with dataset.open(seed=5) as loader:
        usual = list(loader)
    with leaves_nothing(), dataset.debug(seed=5) as stepped:
        found = list(stepped)
    assert len(found) == len(usual)
    assert all(map(same, found, usual))


@pytest.mark.parametrize("chain", ["map", "drawn", "coroutine", "shuffle", "files", "mixture", "subprocesses"])
def test_a_loader_is_looked_at_from_where_it_stands(chain: str, tmp_path: Path) -> None:
    with leaves_nothing(), CHAINS[chain](tmp_path).open(seed=5) as loader:
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        stepped = loader.debug()
        found = list(stepped)
        left = list(iterator)
        assert len(found) == len(left)
        assert all(map(same, found, left))
        del stepped


def told_order(dataset: Callable[[Callable[..., Any]], asd.Dataset[Any]]) -> list[str]:
    """Return what functions and consumer say, in the order in which they do."""
    told: list[str] = []

    def tell(name: str) -> Callable[[Any], Any]:
        def function(value: Any) -> Any:
            told.append(f"{name}{value}")
            return value

        return function

    with dataset(tell).debug() as loader:
        for element in loader:
            told.append(f"got {element}")
    return told


def test_nothing_runs_ahead_of_the_consumer() -> None:
    told = told_order(lambda tell: asd.Dataset.range(3).map(tell("a")).map(tell("b"), concurrency=4).prefetch(2))
    assert told == ["a0", "b0", "got 0", "a1", "b1", "got 1", "a2", "b2", "got 2"]


def test_neither_generators_nor_coroutines_nor_the_next_epoch_run_ahead() -> None:
    told: list[str] = []

    def generate() -> Iterator[int]:
        for number in range(2):
            told.append(f"gen{number}")
            yield number

    async def later(number: int) -> int:
        told.append(f"begin{number}")
        await asyncio.sleep(0)
        told.append(f"end{number}")
        return number

    with asd.Dataset.from_generator(generate).map(later).filter(lambda n: n >= 0).repeat(2).debug() as loader:
        assert told == []
        for element in loader:
            told.append(f"got {element}")
    once = ["gen0", "begin0", "end0", "got 0", "gen1", "begin1", "end1", "got 1"]
    assert told == 2 * once


def test_a_batch_is_filled_row_by_row_when_it_is_asked_for() -> None:
    told = told_order(lambda tell: asd.Dataset.range(4).map(tell("a")).batch(2).map(lambda b: b.sum()).map(tell("b")))
    assert told == ["a0", "a1", "b1", "got 1", "a2", "a3", "b5", "got 5"]


def test_functions_are_called_in_the_thread_that_asks() -> None:
    seen: set[str] = set()

    def look(number: int) -> int:
        seen.add(threading.current_thread().name)
        return number

    with TWENTY.map(look, executor="process", concurrency=2).filter(lambda n: look(n) >= 0).debug() as loader:
        threads = threading.active_count()
        elements = iter(loader)
        next(elements)
        assert threading.active_count() == threads
        other = threading.Thread(target=lambda: next(elements), name="another")
        other.start()
        other.join()
    assert seen == {"MainThread", "another"}


def test_it_steps_inside_a_running_loop_and_functions_may_run_one_of_their_own() -> None:
    async def ask(number: int) -> int:
        return 2 * number

    def ask_somebody(number: int) -> int:
        return asyncio.run(ask(number))

    async def train() -> list[int]:
        mine = asyncio.current_task()
        with TWENTY.map(ask_somebody).map(double_later).debug() as loader:
            found = list(loader)
        async with TWENTY.map(ask_somebody).debug() as loader:
            found += [number async for number in loader]
        await asyncio.sleep(0)
        assert asyncio.current_task() is mine
        return found

    with leaves_nothing():
        assert asyncio.run(train()) == [4 * n for n in range(20)] + [2 * n for n in range(20)]


def test_a_loader_inside_a_function_may_be_looked_at_too() -> None:
    def inner(number: int) -> list[int]:
        with asd.Dataset.range(number).map(double).debug() as loader:
            return list(loader)

    with leaves_nothing(), asd.Dataset.range(3).map(inner).debug() as loader:
        assert list(loader) == [[], [0], [0, 2]]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_error_comes_with_the_users_frames_and_the_same_notes(executor: Any) -> None:
    with leaves_nothing(), TWENTY.map(double).map(fail_on_seven_of, executor=executor).debug() as loader:
        with pytest.raises(ValueError, match="refused") as caught:
            list(loader)
        with pytest.raises(LoaderClosedError):
            list(loader)
    assert not isinstance(caught.value, RecordError)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "fail_on_seven_of"
    assert not {"run_timed", "run_forever", "_work"} & set(names)
    stage, function, record, element = caught.value.__notes__
    assert stage.startswith("stage: map, written at ")
    assert function.startswith("function: fail_on_seven_of (")
    assert (record, element) == ("record: range record 4", "element: 8")


def fail_on_seven_of(number: int) -> int:
    if number == 8:
        raise ValueError("refused")
    return number


def test_an_interrupt_reaches_the_consumer_and_ends_everything() -> None:
    def interrupt(number: int) -> int:
        if number == 3:
            raise KeyboardInterrupt
        return number

    given: list[int] = []
    with leaves_nothing(), pytest.raises(KeyboardInterrupt), TWENTY.map(interrupt).debug() as loader:
        given.extend(loader)
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        given.extend(TWENTY.map(interrupt).debug())
    assert given == [0, 1, 2, 0, 1, 2]


def test_a_state_taken_while_stepping_is_a_state_like_any_other() -> None:
    dataset = TWENTY.map(double).shuffle(6).batch(3)
    with dataset.debug(seed=3) as loader:
        elements = iter(loader)
        next(elements)
        state = loader.state_dict()
        left = list(elements)
    with dataset.open(state) as loader:
        assert all(map(same, list(loader), left))
    with dataset.debug(state) as loader:
        assert all(map(same, list(loader), left))


def close_quietly(loader: asd.Loader[Any]) -> None:
    next(iter(loader))
    loader.close()


def drop(loader: asd.Loader[Any]) -> None:
    next(iter(loader))


def drop_in_a_cycle(loader: asd.Loader[Any]) -> None:
    holder: list[Any] = [iter(loader)]
    holder.append(holder)
    next(holder[0])


@pytest.mark.parametrize("end", [close_quietly, drop, drop_in_a_cycle])
@pytest.mark.parametrize("chain", ["map", "coroutine", "async generator", "files", "interleave", "device"])
def test_closing_or_dropping_it_half_way_leaves_nothing(
    chain: str, end: Callable[[asd.Loader[Any]], None], tmp_path: Path
) -> None:
    with leaves_nothing():
        end(CHAINS[chain](tmp_path).debug())
        gc.collect()


def test_one_that_is_never_asked_and_one_closed_by_a_function_leave_nothing() -> None:
    with leaves_nothing():
        TWENTY.map(double).debug()
        gc.collect()

    def close(number: int) -> int:
        if number == 2:
            loader.close()
        return number

    with leaves_nothing():
        loader = TWENTY.map(close).debug()
        with pytest.raises(LoaderClosedError):
            list(loader)


def test_dump_works_from_inside_a_function() -> None:
    texts: list[str] = []

    def look(number: int) -> int:
        texts.append(loader.dump())
        return number

    with TWENTY.take(2).map(look).debug() as loader:
        list(loader)
    assert "range record 1" in texts[1] or "look" in texts[1]


PROGRAM = """
import numpy as np
import aiostream_data as asd

def decode(number):
    scaled = number * 10
    if number == 2:
        breakpoint()
    return scaled

for element in asd.Dataset.range(4).map(decode, executor="process", concurrency=2).batch(2).debug():
    print("got", element.tolist())
print("done")
"""


def debugged(tmp_path: Path, commands: str) -> tuple[int, str]:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONBREAKPOINT": "pdb.set_trace"}
    done = subprocess.run(
        [sys.executable, str(program)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_pdb_stops_in_a_function_looks_around_and_goes_on(tmp_path: Path) -> None:
    code, told = debugged(tmp_path, "p number, scaled\nscaled = 77\nn\nc\n")
    assert code == 0, told
    assert "(2, 20)" in told
    assert "got [0, 10]" in told.partition("(Pdb)")[0]
    assert "got [77, 30]" in told
    assert "done" in told


def test_pdb_sees_the_training_loop_below_the_function(tmp_path: Path) -> None:
    code, told = debugged(tmp_path, "w\nc\n")
    assert code == 0, told
    assert "train.py(11)<module>()" in told


def test_quitting_pdb_ends_the_program_at_once_and_quietly(tmp_path: Path) -> None:
    code, told = debugged(tmp_path, "q\n")
    assert code == 1
    assert "bdb.BdbQuit" in told
    assert "Warning" not in told
    assert "done" not in told


def test_arrays_are_the_consumers_own() -> None:
    with TWENTY.batch(4).debug() as loader:
        batches = list(loader)
    batches[0][:] = -1
    assert np.array_equal(batches[1], [4, 5, 6, 7])
