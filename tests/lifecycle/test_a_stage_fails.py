"""When a stage fails the consumer gets that error, once, unwrapped and with notes, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing
from pipelines import counting, same, same_async, slow_same

from aiostream_data import Dataset
from aiostream_data.errors import CorruptRecordError, LoaderClosedError, RecordError, StorageError

COUNT = 600
Build = Callable[[int], Dataset[Any]]


class OwnError(Exception):
    """Has a constructor of its own, as users' exceptions do."""

    def __init__(self, number: int, *, where: str) -> None:
        super().__init__(f"number {number} in {where}")
        self.number = number


def _failing_at(at: int) -> Callable[[int], int]:
    def function(value: int) -> int:
        if value == at:
            raise OwnError(at, where="function")
        return value

    return function


def _failing_coroutine(at: int) -> Callable[[int], Any]:
    async def function(value: int) -> int:
        await asyncio.sleep(0)
        return _failing_at(at)(value)

    return function


def _failing_generator(at: int) -> Callable[[], Iterator[int]]:
    return lambda: map(_failing_at(at), range(COUNT))


def _failing_async_generator(at: int) -> Callable[[], AsyncIterator[int]]:
    async def generate() -> AsyncIterator[int]:
        for number in range(COUNT):
            yield _failing_at(at)(number)

    return generate


def _failing_predicate(at: int) -> Callable[[int], bool]:
    return lambda value: _failing_at(at)(value) >= 0


FAILING: dict[str, Build] = {
    "thread map": lambda at: Dataset.range(COUNT).map(_failing_at(at)),
    "unordered map": lambda at: Dataset.range(COUNT).map(_failing_at(at), ordered=False, concurrency=3),
    "coroutine map": lambda at: Dataset.range(COUNT).map(_failing_coroutine(at)),
    "filter": lambda at: Dataset.range(COUNT).filter(_failing_predicate(at)),
    "generator": lambda at: Dataset.from_generator(_failing_generator(at)),
    "async generator": lambda at: Dataset.from_generator(_failing_async_generator(at)),
    "flat_map": lambda at: Dataset.range(COUNT).flat_map(lambda value: [_failing_at(at)(value)]),
    "inner generator": lambda at: Dataset.range(3).interleave(
        lambda _: Dataset.from_generator(_failing_generator(at)), cycle_length=2
    ),
    "zipped": lambda at: Dataset.zip({"a": Dataset.range(COUNT), "b": Dataset.from_generator(_failing_generator(at))}),
    "repeated": lambda at: Dataset.from_generator(_failing_generator(at)).repeat(2),
    "concatenated": lambda at: Dataset.range(5).concatenate(Dataset.from_generator(_failing_generator(at))),
    "cached": lambda at: Dataset.from_generator(_failing_generator(at)).cache(),
}

AFTER: dict[str, Callable[[Dataset[Any]], Dataset[Any]]] = {
    "nothing": lambda dataset: dataset,
    "shuffle, batch": lambda dataset: dataset.shuffle(100, seed=1).batch(8),
    "maps": lambda dataset: dataset.map(same).map(same_async).map(slow_same, concurrency=2),
    "repeat, prefetch, device": lambda dataset: dataset.batch(4).repeat().prefetch(4).to_device("cpu"),
    "zip": lambda dataset: Dataset.zip(Dataset.from_generator(counting), dataset),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("stage", FAILING)
def test_the_consumer_gets_the_stages_own_error_and_nothing_is_left(stage: str, after: str) -> None:
    with leaves_nothing():
        for at in (0, COUNT // 2, COUNT - 1):
            loader = AFTER[after](FAILING[stage](at)).open()
            with pytest.raises(OwnError, match="in function") as caught:
                _drain(loader)
            assert caught.value.number == at
            assert sum(note.startswith("stage: ") for note in caught.value.__notes__) == 1
            with pytest.raises(LoaderClosedError, match="failed with OwnError"):
                _drain(loader)
            del caught


def test_an_async_consumer_gets_the_same_error() -> None:
    async def main() -> None:
        async with FAILING["thread map"](30).open() as loader:
            with pytest.raises(OwnError):
                async for _ in loader:
                    pass
            with pytest.raises(LoaderClosedError):
                aiter(loader)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with leaves_nothing():
        asyncio.run(main(), debug=True)


def _fail_in_a_process(value: int) -> int:
    if value == 30:
        raise OwnError(value, where="a worker process")
    return value


def test_an_error_in_a_worker_process_names_type_record_and_stage() -> None:
    dataset = Dataset.range(COUNT).map(_fail_in_a_process, executor="process", concurrency=2).batch(4)
    with leaves_nothing(), pytest.raises(RecordError, match="OwnError: number 30 in a worker process") as caught:
        _drain(dataset.open())
    assert caught.value.type_name.endswith("OwnError")
    assert "in _fail_in_a_process" in caught.value.worker_traceback
    assert any(note.startswith("record: ") and note.endswith(" record 30") for note in caught.value.__notes__)
    assert any(note.startswith("stage: map, written at ") for note in caught.value.__notes__)


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_function_that_raises_what_python_uses_as_a_signal_ends_only_the_stream(
    signal: type[BaseException], is_coroutine: bool
) -> None:
    def function(value: int) -> int:
        if value == 30:
            raise signal("from the function")
        return value

    async def coroutine(value: int) -> int:
        return function(value)

    dataset = Dataset.range(COUNT).map(coroutine if is_coroutine else function).batch(4)
    with leaves_nothing(), pytest.raises(signal, match="from the function"):
        _drain(dataset.open())


@pytest.mark.parametrize("stop", [StopIteration, StopAsyncIteration])
def test_stopping_an_iteration_inside_a_function_is_an_error_and_no_end(stop: type[Exception]) -> None:
    def function(value: int) -> int:
        if value == 30:
            raise stop
        return value

    with leaves_nothing(), pytest.raises(RuntimeError, match=stop.__name__) as caught:
        _drain(Dataset.range(COUNT).map(function).open())
    assert isinstance(caught.value.__cause__, stop)


def test_a_damaged_shard_is_an_error_at_its_place_and_nothing_behind_it_comes(
    shards: list[str], tmp_path: Path
) -> None:
    damaged = bytearray(Path(shards[1]).read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "damaged.tfrecord").write_bytes(damaged)
    files = [shards[0], str(tmp_path / "damaged.tfrecord"), shards[2]]
    seen: list[bytes] = []
    with leaves_nothing(), pytest.raises(CorruptRecordError) as caught:
        seen.extend(Dataset.from_tfrecord(files).open())
    assert caught.value.url.endswith("damaged.tfrecord")
    assert len(seen) < 4_000
    assert not any(record.startswith(b"2:") for record in seen)


def test_a_missing_file_is_an_error_of_open(tmp_path: Path) -> None:
    with leaves_nothing():
        with pytest.raises(StorageError, match=r"none\.tfrecord"):
            Dataset.from_tfrecord(str(tmp_path / "none.tfrecord")).open()
        with pytest.raises(StorageError, match=r"none-\*"):
            Dataset.from_tfrecord(str(tmp_path / "none-*")).open()


def _drain(loader: Any) -> None:
    for _ in loader:
        pass
