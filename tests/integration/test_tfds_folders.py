"""Folders of TensorFlow Datasets through a Dataset: real files, splits, slices, damage, resuming, and stores."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from http_server import HttpObjects
from tfds_files import FEATURES, element, feature, files, record, sequence, tensor, write_folder

import aiostream_data as asd
from aiostream_data import (
    CorruptRecordError,
    Dataset,
    DecodeError,
    ExampleParseError,
    ObjectNotFoundError,
    PlanError,
    StateMismatchError,
    TfdsError,
)
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

REAL = Path(__file__).parent.parent / "data" / "tfds"
EXPECTED = json.loads((REAL / "expected.json").read_text())
LENGTHS = {"train": (3, 0, 5, 2), "test": (4,)}


def records(lengths: dict[str, tuple[int, ...]] = LENGTHS) -> dict[str, list[list[bytes]]]:
    """Return the records of each shard. Their numbers begin with 0 in ``train``, and with 100 in ``test``."""
    found: dict[str, list[list[bytes]]] = {}
    for name, shards in lengths.items():
        numbers = iter(range(100 * len(found), 100 * len(found) + sum(shards)))
        found[name] = [[record(next(numbers)) for _ in range(rows)] for rows in shards]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "made" / "1.0.0", records())


def plain(value: Any) -> Any:
    """Return a value as the script that made the files wrote it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def numbers(dataset: Dataset[Any]) -> list[int]:
    return [int(row["n"]) for row in dataset]


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


# -- damage


def described(folder: Path, name: str, content: Any) -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        ([], "does not describe a dataset"),
        ({"name": "a"}, "does not describe a dataset"),
        ({"name": "a", "splits": [], "fileFormat": "array_record"}, "format 'array_record'. Only 'tfrecord'"),
        ({"name": "a", "splits": [], "fileFormat": "riegeli"}, "format 'riegeli'"),
        ({"name": "a", "splits": [{"name": "train"}]}, "no list of shards"),
        ({"name": "a", "splits": [{"name": "train", "shardLengths": ["x"]}]}, "invalid number of rows"),
        ({"name": "../b", "splits": [{"name": "train", "shardLengths": ["1"]}]}, "outside of the folder"),
        ({"name": "a", "splits": [{"name": "t", "shardLengths": []}] * 2}, "same name"),
        ({"name": "a", "splits": [{"shardLengths": []}]}, "lacks its name"),
    ],
)
def test_a_damaged_description_of_the_dataset_is_refused(folder: Path, content: Any, message: str) -> None:
    with pytest.raises(TfdsError, match=message) as raised:
        Dataset.from_tfds(described(folder, "dataset_info.json", content)).open()
    assert raised.value.url.endswith("dataset_info.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "does not describe features"),
        (b"[" * 100_000, "does not describe features"),
        ({}, "names no class"),
        (tensor("int64"), "does not describe a FeaturesDict"),
        (feature("FeaturesDict", featuresDict={"features": []}), "has no features"),
        (feature("FeaturesDict", featuresDict={"features": {"a": sequence({})}}), "'a': .*names no class"),
        (
            feature("FeaturesDict", featuresDict={"features": {"a": sequence(tensor("int8"), 1 << 40)}}),
            "length is invalid",
        ),
    ],
)
def test_a_damaged_description_of_features_is_refused(folder: Path, content: Any, message: str) -> None:
    with pytest.raises(TfdsError, match=message) as raised:
        Dataset.from_tfds(described(folder, "features.json", content)).open()
    assert raised.value.url.endswith("features.json")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (feature("MyFeature"), "class MyFeature, which is not supported"),
        (feature("Audio", audio={"lazyDecode": True, "dtype": "int64"}), "stores encoded audio"),
        (tensor("complex64"), "dtype 'complex64'"),
        (tensor("bfloat16"), "dtype 'bfloat16'"),
        (tensor("int8", -1, -1), "several axes of any length"),
        (sequence(tensor("int8", -1, 2)), "several axes of any length"),
        (sequence(tensor("int8", -1, -1, encoding="zlib")), "sequence of tensors of any shape"),
        (tensor("int8", 0, 2), "axis of length 0"),
        (tensor("int8", 2, encoding="gzip"), "encoding 'gzip'"),
    ],
)
def test_features_that_are_not_supported_are_refused_unless_they_are_not_selected(
    folder: Path, bad: Any, message: str
) -> None:
    write_folder(folder, records(), {**FEATURES, "bad": bad})
    with pytest.raises(TfdsError, match=message) as raised:
        Dataset.from_tfds(folder).open()
    assert raised.value.feature == "bad"
    assert numbers(Dataset.from_tfds(folder, features=["n"])) == [*range(10)]


@pytest.mark.parametrize(
    ("kind", "stored", "message"),
    [
        (tensor("int16", 2, encoding="bytes"), {"x": b"abc"}, "3 bytes are no int16 tensor"),
        (tensor("int16", 2, encoding="zlib"), {"x": b"abc"}, "not compressed by zlib"),
        (tensor("int16", 2, encoding="zlib"), {"x": zlib.compress(bytes(10**6))}, "more than 4 bytes"),
        (tensor("int16", 2, encoding="zlib"), {"x": zlib.compress(bytes(4))[:-1]}, "cut short"),
        (tensor("int16", -1, 3, encoding="bytes"), {"x": bytes(8)}, "8 bytes are no int16 tensor"),
        (tensor("int8", -1, -1, encoding="bytes"), {"x/shape": [-1, 2], "x/value": b""}, "does not match"),
        (tensor("int8", -1, -1, encoding="bytes"), {"x/shape": [1 << 40, 2], "x/value": b""}, "0 bytes are no int8"),
        (
            sequence(sequence(tensor("int8"))),
            {"x/ragged_flat_values": [1, 2], "x/ragged_row_lengths_0": [3]},
            "do not add up",
        ),
        (
            sequence(sequence(tensor("int8"))),
            {"x/ragged_flat_values": [1, 2], "x/ragged_row_lengths_0": [3, -1]},
            "do not add up",
        ),
        (
            sequence(sequence(tensor("int8")), 3),
            {"x/ragged_flat_values": [1, 2], "x/ragged_row_lengths_0": [2]},
            "1 values instead of 3",
        ),
    ],
)
def test_values_that_cannot_be_decoded_are_named(
    tmp_path: Path, kind: Any, stored: dict[str, Any], message: str
) -> None:
    encoded = asd.encode_example({"n": 7, **stored})
    folder = write_folder(tmp_path, {"train": [[encoded]]}, {"n": tensor("int64"), "x": kind})
    with pytest.raises(TfdsError, match=message) as raised:
        list(Dataset.from_tfds(folder))
    assert (raised.value.record, raised.value.feature) == (0, "x")
    assert "train.tfrecord-00000" in raised.value.url
    assert list(Dataset.from_tfds(folder, on_error="skip")) == []
    assert numbers(Dataset.from_tfds(folder, features=["n"])) == [7]


def test_records_without_a_feature_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"train": [[record(1), asd.encode_example({"n": 1})]]})
    with pytest.raises(ExampleParseError, match="label"):
        list(Dataset.from_tfds(folder))
    assert numbers(Dataset.from_tfds(folder, on_error="skip")) == [1]


def test_a_damaged_shard_is_named_and_can_be_skipped(folder: Path) -> None:
    path = folder / "made-train.tfrecord-00000-of-00004"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=r"train\.tfrecord-00000"):
        list(Dataset.from_tfds(folder))
    assert numbers(Dataset.from_tfds(folder, on_error="skip")) == [*range(1, 10)]
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"train\.tfrecord-00000"):
        list(Dataset.from_tfds(folder))


def test_images_that_cannot_be_decoded_are_an_error_or_skipped(tmp_path: Path) -> None:
    kinds = {"image": feature("Image", image={"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"})}
    folder = write_folder(tmp_path, {"train": [[asd.encode_example({"image": b"abc"})]]}, kinds)
    with pytest.raises(DecodeError):
        list(Dataset.from_tfds(folder))
    assert list(Dataset.from_tfds(folder, on_error="skip")) == []
    wide = {"image": feature("Image", image={"shape": {"dimensions": ["2", "2", "1"]}, "dtype": "uint16"})}
    write_folder(tmp_path, {"train": [[asd.encode_example({"image": b"abc"})]]}, wide)
    with pytest.raises(PlanError, match="decode=False"):
        Dataset.from_tfds(folder).open()
    assert list(Dataset.from_tfds(folder, decode=False)) == [{"image": b"abc"}]


# -- descriptions of older versions


def test_descriptions_of_older_versions_are_read(tmp_path: Path) -> None:
    def old(kind: str, **content: Any) -> dict[str, Any]:
        return {"type": f"tensorflow_datasets.core.features.{kind}", "content": content}

    folder = write_folder(tmp_path, records())
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
    content = files(records())
    urls = [http_objects.put(f"/made/{name}", data) for name, data in content.items()]
    for name, data in content.items():
        memory.put(f"memory://made/{name}", data)
    assert numbers(Dataset.from_tfds("memory://made", "train[2:]")) == [*range(2, 10)]
    assert numbers(Dataset.from_tfds(urls[0].rpartition("/")[0], "train[2:]")) == [*range(2, 10)]


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        for name, data in files(records({"train": (200, 200, 200)})).items():
            server.put(f"bucket/made/{name}", data)
        dataset = Dataset.from_tfds(f"{scheme}://bucket/made", cycle_length=2, storage_options=server.storage_options)
        with dataset.open() as loader:
            left = [int(next(loader)["n"]) for _ in range(150)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            left += [int(row["n"]) for row in loader]
        assert sorted(left) == [*range(600)]
