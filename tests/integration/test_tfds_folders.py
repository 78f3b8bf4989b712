"""Folders of TensorFlow Datasets through a Dataset: real files, splits, slices, damage, resuming, and stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from http_server import HttpObjects
from tfds_files import described, element, files, numbers, plain, records_of, write_folder

import aiostream_data as asd
from aiostream_data import Dataset, ObjectNotFoundError, PlanError, StateMismatchError
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

REAL = Path(__file__).parent.parent / "data" / "tfds"
EXPECTED = json.loads((REAL / "expected.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "made" / "1.0.0", records_of())


# -- files of the real library


@pytest.mark.parametrize("split", ["train", "test"])
def test_files_of_the_real_library_are_read_to_equal_values(split: str) -> None:
    found = [plain(row) for row in Dataset.from_tfds(REAL / "everything", split)]
    for row in (expected := EXPECTED["rows"][split]):
        row["steps"] = {name: [step[name] for step in row["steps"]] for name in row["steps"][0]}
    assert found == expected


@pytest.mark.parametrize("split", EXPECTED["ids"])
def test_slices_select_the_rows_of_the_real_library(split: str) -> None:
    dataset = Dataset.from_tfds(REAL / "everything", split, features=["id"])
    assert [int(row["id"]) for row in dataset] == EXPECTED["ids"][split]


def test_values_have_the_declared_dtypes_and_form_arrays_in_batches() -> None:
    names = ["label", "flag", "double", "large", "matrix", "points", "stored", "packed", "tokens", "pair", "objects"]
    batch = next(iter(Dataset.from_tfds(REAL / "everything", features=names).batch(7)))
    kinds = {name: (batch[name].dtype, batch[name].shape) for name in ("label", "flag", "double", "large", "matrix")}
    assert kinds == {
        "label": (np.int64, (7,)),
        "flag": (np.bool_, (7,)),
        "double": (np.float64, (7,)),
        "large": (np.uint64, (7,)),
        "matrix": (np.uint8, (7, 2, 3)),
    }
    assert (batch["stored"].dtype, batch["stored"].shape, batch["pair"].shape) == (np.uint16, (7, 2, 2), (7, 2))
    assert (batch["packed"].values.dtype, batch["packed"].values.shape) == (np.float64, (21, 2))
    assert batch["objects"]["box"].values.shape[1:] == (4,)
    assert batch["tokens"].values.dtype == np.int32


def test_false_leaves_images_as_bytes() -> None:
    (row,) = Dataset.from_tfds(REAL / "everything", features=["image", "frames"], decode=False).take(1)
    assert row["image"].startswith(b"\x89PNG")
    assert all(frame.startswith(b"\x89PNG") for frame in row["frames"])


def test_selected_features_keep_their_groups() -> None:
    dataset = Dataset.from_tfds(REAL / "everything", features=["objects/label", "meta/place"])
    assert [{name: list(value) for name, value in row.items()} for row in dataset.take(1)] == [
        {"meta": ["place"], "objects": ["label"]}
    ]


def test_splits_and_names_of_classes_are_known() -> None:
    found = asd.tfds_info(REAL / "everything")
    assert found.splits == {"train": 7, "test": 3}
    assert found.classes == {"label": ["cat", "dog", "owl"], "objects/label": ["0", "1", "2", "3", "4"]}


# -- splits


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train", [*range(10)]),
        ("train[4:9]", [4, 5, 6, 7, 8]),
        ("train[4:5]", [4]),
        ("train[:-8]", [0, 1]),
        ("train[-1shard:]", [8, 9]),
        ("train[-1shard]", [8, 9]),
        ("train[:2shard]", [0, 1, 2]),
        ("train[95%:]", []),
        ("train[90%:]+test[:1]", [9, 100]),
        ("all", [*range(10), 100, 101, 102, 103]),
    ],
)
def test_slices_select_exactly_their_rows(folder: Path, split: str, expected: list[int]) -> None:
    dataset = Dataset.from_tfds(folder, split)
    if not expected:
        with pytest.raises(PlanError, match="selects no rows"):
            dataset.open()
        return
    assert numbers(dataset) == expected
    shuffled = Dataset.from_tfds(folder, split, cycle_length=3, shuffle_shards=True, seed=1)
    assert sorted(numbers(shuffled)) == expected


def test_shards_of_a_split_are_interleaved(folder: Path) -> None:
    assert numbers(Dataset.from_tfds(folder, cycle_length=2))[:4] == [0, 3, 1, 4]
    first = next(iter(Dataset.from_tfds(folder)))
    assert {name: plain(value) for name, value in first.items()} == plain(element(0))


def test_folders_with_special_characters_are_read(folder: Path) -> None:
    odd = folder.rename(folder.with_name("tfds [1] {a,b}*"))
    assert numbers(Dataset.from_tfds(str(odd) + "/")) == [*range(10)]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("validation", r"has no split 'validation'\. Its splits are \['train', 'test'\]"),
        ("train[:11]", "not part of its 10 rows"),
        ("train[:5shard]", "not part of its 10 rows in 4 shards"),
        ("train[3:3]", "selects no rows"),
    ],
)
def test_splits_that_do_not_exist_are_reported_when_the_dataset_is_opened(
    folder: Path, split: str, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        Dataset.from_tfds(folder, split).open()


# -- resuming


def test_every_run_resumes_everywhere(folder: Path) -> None:
    resumes_everywhere(Dataset.from_tfds(folder, cycle_length=2, shuffle_shards=True, seed=1).shuffle(4, seed=2))
    resumes_everywhere(Dataset.from_tfds(folder, "train[1:9]+test[1:]", cycle_length=2))
    resumes_everywhere(Dataset.from_tfds(REAL / "everything", features=["words", "image"]).map(len))


def test_ranks_share_the_rows_and_rows_can_be_fetched(folder: Path) -> None:
    found = []
    for rank in range(3):
        dataset = Dataset.from_tfds(folder, "train[1:]").shuffle(5, seed=1)
        with dataset.open(rank=rank, world_size=3) as loader:
            for row in loader:
                found.append(int(row["n"]))
                (origin,) = loader.origins()
                assert plain(dataset.fetch(origin)) == plain(row)
    assert sorted(found) == [*range(1, 10)]


def test_datasets_of_several_folders_are_combined_by_operators(folder: Path) -> None:
    both = Dataset.from_tfds(folder, "test").concatenate(Dataset.from_tfds(folder, "test"))
    assert numbers(both) == [100, 101, 102, 103] * 2
    with pytest.raises(PlanError, match="concatenate"):
        list(Dataset.from_tensor_slices([str(folder)]).interleave(Dataset.from_tfds))


def test_a_state_of_other_features_is_refused(folder: Path) -> None:
    with Dataset.from_tfds(folder).open() as loader:
        next(loader)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError):
        Dataset.from_tfds(folder, features=["n"]).open(state)


# -- descriptions of older versions


def test_descriptions_of_older_versions_are_read(tmp_path: Path) -> None:
    def old(kind: str, **content: Any) -> dict[str, Any]:
        return {"type": f"tensorflow_datasets.core.features.{kind}", "content": content}

    folder = write_folder(tmp_path, records_of())
    features = {
        "label": old("ClassLabel", num_classes=3),
        "n": old("Tensor", shape=[], dtype="int64"),
        "text": old("Text"),
        "tokens": old("Sequence", feature=old("Tensor", shape=[], dtype="int32"), length=None),
    }
    described(folder, "features.json", old("FeaturesDict", **features))
    splits = [{"name": "train", "shard_lengths": [3, 0, 5, 2]}]
    described(folder, "dataset_info.json", {"name": "made", "splits": splits})
    assert [plain(row) for row in Dataset.from_tfds(folder)] == [plain(element(n)) for n in range(10)]


# -- arguments and stores


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset.from_tfds(cast(Any, ["a"])), "folder must be the URL or path of one folder"),
        (lambda: Dataset.from_tfds(""), "folder must be"),
        (lambda: Dataset.from_tfds("a", cast(Any, 1)), "split must be a str"),
        (lambda: Dataset.from_tfds("a", "train[]"), "cannot parse split"),
        (lambda: Dataset.from_tfds("a", "train[:]"), "cannot parse split"),
        (lambda: Dataset.from_tfds("a", "train[3]"), "is not a slice"),
        (lambda: Dataset.from_tfds("a", "train[:1.5]"), "whole numbers"),
        (lambda: Dataset.from_tfds("a", "train[:101%]"), "percentages"),
        (lambda: Dataset.from_tfds("a", "train[1%:2shard]"), "different units"),
        (lambda: Dataset.from_tfds("a", "all[:1]"), "cannot be sliced"),
        (lambda: Dataset.from_tfds("a", features=[]), "features must be different names"),
        (lambda: Dataset.from_tfds("a", features="ab"), "features must be a list"),
        (lambda: Dataset.from_tfds("a", decode=cast(Any, "all")), "decode must be"),
        (lambda: Dataset.from_tfds("a", cycle_length=0), "cycle_length must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused_at_once(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


def test_what_the_folder_lacks_is_reported_when_the_dataset_is_opened(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"has no feature 'm'\. Its features are \['label', 'n', 'text', 'tokens'\]"):
        Dataset.from_tfds(folder, features=["m"]).open()
    with pytest.raises(ObjectNotFoundError, match=r"dataset_info\.json"):
        Dataset.from_tfds(tmp_path / "missing").open()


def test_memory_and_http_deliver_the_same_rows(http_objects: HttpObjects, memory_objects: None) -> None:
    content = files(records_of())
    urls = [http_objects.put(f"/made/{name}", data) for name, data in content.items()]
    for name, data in content.items():
        memory.put(f"memory://made/{name}", data)
    assert numbers(Dataset.from_tfds("memory://made", "train[2:]")) == [*range(2, 10)]
    assert numbers(Dataset.from_tfds(urls[0].rpartition("/")[0], "train[2:]")) == [*range(2, 10)]


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        for name, data in files(records_of({"train": (200, 200, 200)})).items():
            server.put(f"bucket/made/{name}", data)
        dataset = Dataset.from_tfds(f"{scheme}://bucket/made", cycle_length=2, storage_options=server.storage_options)
        with dataset.open() as loader:
            left = [int(next(loader)["n"]) for _ in range(150)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            left += [int(row["n"]) for row in loader]
        assert sorted(left) == [*range(600)]


def test_random_numbers_do_not_depend_on_the_number_of_ranks(folder: Path) -> None:
    def with_number(row: Any, rng: np.random.Generator) -> tuple[int, int]:
        return int(row["n"]), int(rng.integers(1 << 30))

    dataset = Dataset.from_tfds(folder).map(with_number, seed=1)
    alone = dict(dataset.open(seed=0))
    apart = [pair for rank in (0, 1) for pair in dataset.open(seed=0, rank=rank, world_size=2)]
    assert len(apart) == len(alone) > 2
    assert dict(apart) == alone
