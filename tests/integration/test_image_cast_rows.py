"""ImageCast in a pipeline: what is drawn depends on seed, epoch and row alone, however the pipeline runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from thread_child import ThreadChild

from aiostream_data import Dataset, ImageCast
from aiostream_data._engine.processes import process_handle as hosting_process
from aiostream_data.errors import DeviceTargetError, ImageCastError, PlanError
from aiostream_data.rows.ragged import RaggedArray

ROWS = 37
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 12, 16, 3), np.uint8)
RANDOM = ImageCast(dtype="float16", flip="random", crop=(8, 8), crop_at="random", mean=0.5, std=0.25)
PLAIN = ImageCast(mean=(0.4, 0.5, 0.6), std=0.25)

Rows = dict[int, NDArray[Any]]


def row(number: int) -> dict[str, Any]:
    return {"image": IMAGES[int(number)], "label": int(number)}


def rows(count: int = ROWS) -> Dataset[Any]:
    return Dataset.range(count).map(row)


def cast(dataset: Dataset[Any], transform: ImageCast = RANDOM) -> Dataset[Any]:
    return dataset.to_device("cpu", transform=transform)


def by_label(batches: Iterable[Any]) -> Rows:
    """Return the images by their label; each label must come once."""
    found = [
        (int(label), image) for batch in batches for label, image in zip(batch["label"], batch["image"], strict=True)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def given(dataset: Dataset[Any], **options: Any) -> Rows:
    with dataset.open(**{"seed": 5, **options}) as loader:
        return by_label(loader)


def assert_same(found: Rows, expected: Rows) -> None:
    assert found.keys() == expected.keys()
    for label, image in expected.items():
        np.testing.assert_array_equal(found[label], image, err_msg=f"label {label}")


def share_of_same(some: Rows, others: Rows) -> float:
    return float(np.mean([np.array_equal(some[label], others[label]) for label in some]))


@pytest.fixture(scope="module")
def expected() -> Rows:
    return given(cast(rows().batch(8)))


@pytest.fixture
def threads_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads stand for the processes of in_subprocess."""
    monkeypatch.setattr(hosting_process, "Child", ThreadChild)


def test_batches_are_cast_and_everything_else_is_as_it_was() -> None:
    batches = list(cast(rows().batch(8), PLAIN))
    assert [len(batch["label"]) for batch in batches] == [8, 8, 8, 8, 5]
    for batch in batches:
        assert batch["image"].dtype == np.float32
        wanted = (IMAGES[batch["label"]] / 255 - np.array([0.4, 0.5, 0.6])) / 0.25
        np.testing.assert_allclose(batch["image"], wanted.transpose(0, 3, 1, 2), rtol=0, atol=2e-6)


def test_every_row_is_one_of_the_cuts_of_its_image_mirrored_or_not(expected: Rows) -> None:
    mirrored = 0
    for label, image in expected.items():
        whole = ((IMAGES[label] / 255 - 0.5) / 0.25).astype(np.float16)
        cuts = [whole[top : top + 8, left : left + 8] for top in range(5) for left in range(9)]
        wanted = image.transpose(1, 2, 0)
        upright = any(np.allclose(wanted, cut, atol=2e-3) for cut in cuts)
        mirrored += not upright
        assert upright or any(np.allclose(wanted, cut[:, ::-1], atol=2e-3) for cut in cuts), label
    assert 5 < mirrored < ROWS - 5


@pytest.mark.parametrize("size", [1, 5, 37])
def test_the_size_of_batches_changes_no_row(expected: Rows, size: int) -> None:
    assert_same(given(cast(rows().batch(size))), expected)


def test_the_order_of_rows_changes_no_row(expected: Rows) -> None:
    assert_same(given(cast(rows().shuffle(20).batch(8))), expected)


def test_threads_and_unordered_work_change_no_row(expected: Rows) -> None:
    parallel = Dataset.range(ROWS).map(row, concurrency=4, ordered=False).batch(8)
    assert_same(given(cast(parallel), deterministic=False), expected)


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", [1, 3])
def test_processes_change_no_row(expected: Rows, workers: int) -> None:
    assert_same(given(cast(rows().batch(8).in_subprocess(workers))), expected)


def large_row(number: int) -> dict[str, Any]:
    return {"image": np.random.default_rng(int(number)).integers(0, 256, (160, 160, 3), np.uint8), "label": int(number)}


@pytest.mark.usefixtures("threads_host")
def test_images_are_copied_from_where_a_process_wrote_them_and_cast_all_the_same() -> None:
    transform = ImageCast(dtype="float16", flip="random", crop=(128, 128), crop_at="random")
    dataset = Dataset.range(40).map(large_row).batch(20)
    expected = given(cast(dataset, transform))
    with cast(dataset.in_subprocess(), transform).open(seed=5) as loader:
        assert_same(by_label(loader), expected)
        (copies,) = loader.stats().devices
    assert copies.in_place_nbytes == 40 * 160 * 160 * 3
    assert copies.host_nbytes < 160 * 160 * 3


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_change_no_row(expected: Rows, world_size: int) -> None:
    found: Rows = {}
    for rank in range(world_size):
        found |= given(cast(rows(36).batch(6)), rank=rank, world_size=world_size)
    assert_same(found, {label: image for label, image in expected.items() if label < 36})


def test_stepping_through_it_changes_no_row(expected: Rows) -> None:
    with cast(rows().batch(8)).open(seed=5) as loader:
        assert_same(by_label(loader.debug()), expected)


@pytest.mark.parametrize("before", range(6))
def test_a_resumed_run_goes_on_with_the_same_draws(before: int) -> None:
    dataset = cast(rows().shuffle(9).batch(7).prefetch(2))
    whole = list(dataset.open(seed=3))
    with dataset.open(seed=3) as loader:
        iterator = iter(loader)
        for _ in range(before):
            next(iterator)
        state = loader.state_dict()
    rest = list(dataset.open(state))
    assert len(rest) == len(whole) - before
    for found, wanted in zip(rest, whole[before:], strict=True):
        np.testing.assert_array_equal(found["label"], wanted["label"])
        np.testing.assert_array_equal(found["image"], wanted["image"])


def test_epochs_and_seeds_draw_anew_and_a_seed_of_its_own_holds_against_the_run(expected: Rows) -> None:
    dataset = cast(rows().batch(8))
    assert share_of_same(given(dataset, seed=6), expected) < 0.3
    assert share_of_same(given(dataset, epoch=1), expected) < 0.3
    own = cast(rows().batch(8), ImageCast(flip="random", crop=(8, 8), crop_at="random", seed=1))
    assert_same(given(own, seed=6), given(own, seed=7))
    assert share_of_same(given(own, epoch=1), given(own)) < 0.3


def test_what_a_row_draws_never_changes() -> None:
    columns = np.tile(np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1), (24, 1, 1, 1))
    transform = ImageCast(scale=1.0, flip="random", crop=(1, 2), crop_at="random", layout="NHWC")
    (found,) = cast(Dataset.from_tensor_slices(columns).batch(24), transform).open(seed=5)
    first = [1, 2, 2, 2, 1, 3, 2, 3, 1, 2, 0, 0, 2, 3, 3, 1, 0, 1, 1, 1, 1, 1, 1, 3]
    second = [2, 3, 1, 3, 0, 2, 1, 2, 0, 3, 1, 1, 1, 2, 2, 0, 1, 0, 0, 0, 2, 0, 2, 2]
    assert found[:, 0, :, 0].T.tolist() == [first, second]


def test_repetitions_of_a_row_are_drawn_anew() -> None:
    batches = list(cast(rows().repeat(2).batch(ROWS)).open(seed=5))
    first, second = (by_label([batch]) for batch in batches)
    assert share_of_same(first, second) < 0.3


def test_elements_that_a_function_made_whole_are_cast_too() -> None:
    def batches() -> Iterable[dict[str, Any]]:
        yield {"image": IMAGES[:20], "label": np.arange(20)}
        yield {"image": IMAGES[20:], "label": np.arange(20, ROWS)}

    dataset = cast(Dataset.from_generator(batches))
    assert_same(given(dataset), given(dataset))
    flips = {image.tobytes() for image in given(dataset).values()}
    assert len(flips) == ROWS


def test_ragged_leaves_pass_beside_the_images() -> None:
    def element(number: int) -> dict[str, Any]:
        return {"image": IMAGES[int(number)], "label": int(number)}

    dataset = Dataset.range(6).map(element).batch(3)
    found = list(cast(dataset.map(_with_words), PLAIN))
    assert [words.tolist() for batch in found for words in batch["words"]] == [[0], [1, 1], [2, 2, 2]] * 2
    assert found[0]["image"].shape == (3, 3, 12, 16)


def _with_words(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "words": RaggedArray(np.repeat(np.arange(3), [1, 2, 3]), np.array([0, 1, 3, 6]))}


def test_a_batch_that_does_not_fit_is_an_error_of_the_data_told_by_leaf() -> None:
    dataset = cast(
        Dataset.range(4).map(lambda number: {"image": np.zeros((4, 4, 1 + int(number) // 2), np.uint8)}).batch(2)
    )
    with pytest.raises(ImageCastError, match=r"leaf 'image': images are 4 pixels high, but crop needs 8"):
        list(dataset)


def test_what_was_taken_out_belongs_to_the_consumer() -> None:
    kept = list(cast(rows().batch(8), PLAIN))
    for batch in kept:
        batch["image"][:] = batch["label"].reshape(-1, 1, 1, 1)
    assert all((batch["image"] == batch["label"].reshape(-1, 1, 1, 1)).all() for batch in kept)


def test_batches_can_be_cast_into_arrays_that_stay_where_they_are() -> None:
    dataset = rows().batch(8, drop_remainder=True)
    expected = list(cast(dataset, PLAIN))
    targets = {"image": np.empty((8, 3, 12, 16), np.float32), "label": np.empty(8, np.int64)}
    with dataset.to_device("cpu", handoff="into", transform=PLAIN).open() as loader:
        for number, batch in enumerate(loader):
            assert batch.into(targets) is targets
            np.testing.assert_array_equal(targets["image"], expected[number]["image"])
            np.testing.assert_array_equal(targets["label"], expected[number]["label"])
    assert number == len(expected) - 1


@pytest.mark.parametrize(("shift", "fits"), [(0, True), (4, True), (12, True), (1, False), (2, False)])
def test_a_target_of_a_cast_begins_at_a_whole_number(shift: int, fits: bool) -> None:
    dataset = rows().batch(8, drop_remainder=True)
    [expected] = list(cast(dataset.take(1), PLAIN))
    memory = np.zeros(8 * 3 * 12 * 16 * 4 + 16, np.uint8)[shift:][: 8 * 3 * 12 * 16 * 4]
    targets = {"image": memory.view(np.float32).reshape(8, 3, 12, 16), "label": np.empty(8, np.int64)}
    with dataset.take(1).to_device("cpu", handoff="into", transform=PLAIN).open() as loader:
        for batch in loader:
            if fits:
                np.testing.assert_array_equal(batch.into(targets)["image"], expected["image"])
                return
            with batch, pytest.raises(DeviceTargetError, match=r"target 'image'.* not a multiple of 4 bytes"):
                batch.into(targets)


def test_a_batch_to_be_cast_is_had_by_into_alone() -> None:
    with rows().batch(8).to_device("cpu", handoff="into", transform=PLAIN).open() as loader:
        for batch in loader:
            with batch, pytest.raises(PlanError, match=r"cannot use this batch in its slot.*into\(\)"):
                batch.arrays()


def test_a_lease_is_of_the_slot_and_so_of_nothing_cast() -> None:
    with pytest.raises(PlanError, match="a lease exposes the slot itself"):
        rows().batch(8).to_device("cpu", handoff="lease", transform=PLAIN)
