"""in_subprocess() with to_device(): batches are copied from where the process wrote them, and nothing else changes."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import subprocess_functions as functions
from leaks import leaves_nothing
from thread_child import ThreadChild

from aiostream_data import Dataset, ImageCast
from aiostream_data._engine.processes import process_handle as hosting_process
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.errors import WorkerDiedError
from aiostream_data.testing.comparing import same

IMAGE_NBYTES = 64 * 64 * 3
ROWS, SIZE = 104, 16


@pytest.fixture
def threads_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads stand in for processes, which take half a second each to start."""
    monkeypatch.setattr(hosting_process, "Child", ThreadChild)


def labelled_image(number: int) -> dict[str, Any]:
    return {"image": functions.image(number), "label": int(number)}


def images() -> Dataset[Any]:
    return Dataset.range(ROWS).shuffle(32).map(labelled_image).batch(SIZE)


def read(dataset: Dataset[Any], **options: Any) -> tuple[list[Any], str]:
    with dataset.open(**{"seed": 7, **options}) as loader:
        return list(loader), loader.stream_hash


def assert_same(expected: tuple[list[Any], str], found: tuple[list[Any], str]) -> None:
    assert len(found[0]) == len(expected[0])
    assert all(map(same, expected[0], found[0]))
    assert found[1] == expected[1]


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_values_order_and_hash_are_those_of_the_chain_without_them(workers: int, prefetch: int) -> None:
    hosted = images().in_subprocess(workers)
    hosted = hosted.prefetch(prefetch) if prefetch else hosted
    with leaves_nothing():
        assert_same(read(images()), read(hosted.to_device("cpu")))


@pytest.mark.usefixtures("threads_host")
def test_large_arrays_are_copied_on_the_host_by_the_process_alone() -> None:
    with images().in_subprocess().to_device("cpu", depth=2).open(seed=7) as loader:
        batches = list(loader)
        (copies,) = loader.stats().devices
    labels = sum(batch["label"].nbytes for batch in batches)
    assert copies.in_place_nbytes == ROWS * IMAGE_NBYTES
    assert copies.written_nbytes <= labels + 256 * len(batches), "only labels go through slots"
    assert copies.shared_arrays_rewritten == 0
    assert 0 < copies.shared_blocks <= copies.shared_blocks_locked <= len(batches)
    assert copies.shared_nbytes >= copies.shared_blocks * SIZE // 2 * IMAGE_NBYTES
    assert copies.host_nbytes < IMAGE_NBYTES, "slots are as large as what goes through them"


@pytest.mark.usefixtures("threads_host")
def test_without_a_process_everything_goes_through_slots() -> None:
    with images().to_device("cpu").open(seed=7) as loader:
        assert len(list(loader)) == 7
        (copies,) = loader.stats().devices
    assert copies.in_place_nbytes == copies.shared_blocks_locked == copies.shared_arrays_rewritten == 0


@pytest.mark.usefixtures("threads_host")
def test_what_a_function_behind_the_process_makes_anew_goes_through_slots() -> None:
    def flipped(batch: dict[str, Any]) -> dict[str, Any]:
        return {"image": batch["image"][:, :, ::-1], "label": batch["label"]}

    hosted = images().in_subprocess().map(flipped).to_device("cpu")
    assert_same(read(images().map(flipped)), read(hosted))
    with hosted.open(seed=7) as loader:
        batches = len(list(loader))
        (copies,) = loader.stats().devices
    assert (copies.in_place_nbytes, copies.shared_arrays_rewritten) == (0, batches)


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("taken", [1, 3, 6])
def test_it_resumes_where_it_was_left_and_so_does_the_chain_without_them(taken: int) -> None:
    expected, _ = read(images())
    hosted = images().in_subprocess(2).to_device("cpu")
    with hosted.open(seed=7) as loader:
        first = list(islice(loader, taken))
        state = loader.state_dict()
    for dataset in (hosted, images()):
        with dataset.open(state=state) as loader:
            assert all(map(same, expected, [*first, *loader]))


@pytest.mark.usefixtures("threads_host")
def test_batches_on_the_device_belong_to_the_consumer_who_may_keep_all_of_them_and_write_into_them() -> None:
    dataset = Dataset.range(640).map(functions.image).batch(32).in_subprocess().to_device("cpu")
    with dataset.open(memory_limit="16MB") as loader:
        batches = list(loader)
    for number, batch in enumerate(batches):
        batch += 1
        assert (batch[:, 0, 0, 0] == (np.arange(32 * number, 32 * number + 32) % 251 + 1)).all()


@pytest.mark.usefixtures("threads_host")
def test_batches_that_are_used_in_their_slots_or_cast_come_from_where_the_process_wrote_them_too() -> None:
    cast = ImageCast(scale=1 / 255, layout="NCHW", flip="random")
    for options, arrays_of in (
        ({"handoff": "lease"}, copied_and_released),
        ({"transform": cast}, copied),
    ):
        found = []
        for dataset in (images(), images().in_subprocess(2)):
            with dataset.to_device("cpu", **options).open(seed=7) as loader:
                found.append([arrays_of(batch) for batch in loader])
                (copies,) = loader.stats().devices
        assert all(map(same, *found))
        assert copies.in_place_nbytes == ROWS * IMAGE_NBYTES


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(array) for name, array in batch.items()}


def copied_and_released(batch: DeviceBatch) -> dict[str, Any]:
    with batch:
        return copied(batch.arrays())


@pytest.mark.usefixtures("threads_host")
def test_the_report_says_what_was_copied_in_place() -> None:
    with images().in_subprocess().to_device("cpu").open(seed=7) as loader:
        for _ in loader:
            pass
        assert "of it was copied directly from the memory of in_subprocess()" in str(loader.report())


def test_explain_says_that_arrays_are_copied_from_where_they_were_written_and_how_much_is_locked() -> None:
    said = images().in_subprocess().to_device("cuda:0").explain(memory_limit="64MB")
    assert "large arrays are copied to cuda:0 directly from the memory of in_subprocess" in said
    assert "at most 16 MiB of that memory is page-locked at once" in said
    assert "page-locked at once" not in images().in_subprocess().to_device("cpu").explain()
    assert "directly from the memory of in_subprocess" not in images().to_device("cuda:0").explain()


@pytest.mark.parametrize("chain", ["whole", "left early"])
def test_with_a_process_of_its_own_nothing_is_left(chain: str) -> None:
    expected, _ = read(images())
    with leaves_nothing(), images().in_subprocess().to_device("cpu").open(seed=7) as loader:
        found = list(islice(loader, None if chain == "whole" else 2))
        assert all(map(same, expected, found))


def dies_at_70(number: int) -> np.ndarray[Any, Any]:
    functions.killed_at_13(13 if number == 70 else 0)
    return functions.image(number)


def test_a_process_that_dies_while_it_fills_a_block_is_told_and_leaves_nothing() -> None:
    dataset = Dataset.range(200).map(dies_at_70).batch(SIZE).in_subprocess().to_device("cpu")
    found: list[Any] = []
    with leaves_nothing(), dataset.open() as loader:
        with pytest.raises(WorkerDiedError, match="killed by signal 9"):
            found.extend(loader)
        for number, batch in enumerate(found):
            assert (batch[:, 0, 0, 0] == np.arange(SIZE * number, SIZE * number + SIZE) % 251).all()
