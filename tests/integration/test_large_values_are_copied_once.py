"""A large value becomes one ``bytes`` object, for the first function that receives it, and stays this object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, TFRecordWriter
from aiostream_data._engine.memory.buffers import BlockPool

NBYTES = 100_000
COUNT = 24

Chain = Callable[[Dataset[bytes]], Dataset[Any]]

CHAINS: dict[str, Chain] = {
    "nothing": lambda dataset: dataset,
    "shuffle": lambda dataset: dataset.shuffle(5, seed=3),
    "filter": lambda dataset: dataset.filter(lambda value: len(value) > 0),
    "second function": lambda dataset: dataset.map(lambda value: value),
    "zip": lambda dataset: Dataset.zip(dataset, Dataset.range(COUNT)).map(lambda value, number: value),
    "take and skip": lambda dataset: dataset.skip(1).take(COUNT),
    "prefetch": lambda dataset: dataset.prefetch(4),
    "interleave": lambda dataset: dataset.interleave(lambda value: Dataset.from_iterable([value]), cycle_length=3),
}


def jpeg(number: int) -> bytes:
    return np.random.default_rng(number).bytes(NBYTES)


def files(folder: Path) -> Dataset[bytes]:
    for number in range(COUNT):
        (folder / f"{number:03}.jpg").write_bytes(jpeg(number))
    return Dataset.from_files(str(folder / "*.jpg")).map(lambda file: file["data"])


def records(folder: Path) -> Dataset[bytes]:
    with TFRecordWriter(str(folder / "all.tfrecord")) as writer:
        for number in range(COUNT):
            writer.write(jpeg(number))
    return Dataset.from_tfrecord(str(folder / "all.tfrecord"))


@pytest.mark.parametrize("source", [files, records])
@pytest.mark.parametrize("chain", CHAINS)
def test_what_a_function_received_is_handed_over_itself(
    tmp_path: Path, source: Callable[[Path], Dataset[bytes]], chain: str
) -> None:
    seen: list[bytes] = []

    def see(value: bytes) -> bytes:
        seen.append(value)
        return value

    dataset = CHAINS[chain](source(tmp_path).map(see))
    with dataset.open() as loader:
        given = list(loader)
    assert given
    assert {id(value) for value in given} <= {id(value) for value in seen}
    assert {value[:8] for value in given} <= {jpeg(number)[:8] for number in range(COUNT)}


@pytest.mark.parametrize("source", [files, records])
def test_a_batch_holds_the_objects_that_the_function_received(
    tmp_path: Path, source: Callable[[Path], Dataset[bytes]]
) -> None:
    seen: list[bytes] = []

    def see(value: bytes) -> bytes:
        seen.append(value)
        return value

    with source(tmp_path).map(see).shuffle(7, seed=1).batch(4).open() as loader:
        given = [value for batch in loader for value in batch]
    assert len(given) == COUNT
    assert {id(value) for value in given} == {id(value) for value in seen}


@pytest.mark.parametrize("source", [files, records])
def test_a_view_is_of_the_memory_that_was_read(tmp_path: Path, source: Callable[[Path], Dataset[bytes]]) -> None:
    """Two functions one after the other look at the same memory."""
    seen: list[tuple[int, int]] = []

    def see(value: memoryview) -> memoryview:
        seen.append((np.frombuffer(value, np.uint8).__array_interface__["data"][0], len(value)))
        return value

    def look_again(value: memoryview) -> int:
        address = np.frombuffer(value, np.uint8).__array_interface__["data"][0]
        assert (address, len(value)) in seen
        return len(value)

    with source(tmp_path).map(see).map(look_again).open() as loader:
        assert list(loader) == [NBYTES] * COUNT


async def length_later(value: bytes) -> int:
    return len(value)


def length_of_view(value: memoryview) -> int:
    return len(value)


CALLS: dict[str, Chain] = {
    "map": lambda dataset: dataset.map(len),
    "filter": lambda dataset: dataset.filter(lambda value: len(value) < 1),
    "coroutine": lambda dataset: dataset.map(length_later),
    "flat_map": lambda dataset: dataset.flat_map(lambda value: [len(value)]),
    "skip": lambda dataset: dataset.map(len, on_error="skip"),
}


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the objects whose memory was taken from a pool."""
    sizes: list[int] = []
    lend = BlockPool.lend_objects

    def lend_objects(self: BlockPool, wanted: Any) -> Any:
        wanted = list(wanted)
        sizes.extend(wanted)
        return lend(self, wanted)

    monkeypatch.setattr(BlockPool, "lend_objects", lend_objects)
    return sizes


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_takes_memory_of_earlier_ones(tmp_path: Path, lent: list[int], call: str) -> None:
    with CALLS[call](records(tmp_path)).open() as loader:
        list(loader)
    assert lent == [NBYTES] * COUNT


def test_take_while_takes_memory_of_earlier_arguments(tmp_path: Path, lent: list[int]) -> None:
    with records(tmp_path).take_while(lambda value: len(value) < NBYTES).open() as loader:
        assert list(loader) == []
    assert set(lent) == {NBYTES}


def test_a_view_takes_no_memory(tmp_path: Path, lent: list[int]) -> None:
    with records(tmp_path).map(length_of_view).open() as loader:
        assert list(loader) == [NBYTES] * COUNT
    assert not lent
