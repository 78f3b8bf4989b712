"""Damaged folders of TensorFlow Datasets, and features that are not supported."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from tfds_files import FEATURES, described, feature, numbers, record, records_of, sequence, tensor, write_folder

import aiostream_data as asd
from aiostream_data import (
    CorruptRecordError,
    Dataset,
    DecodeError,
    ExampleParseError,
    ObjectNotFoundError,
    PlanError,
    TfdsError,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "made" / "1.0.0", records_of())


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
    write_folder(folder, records_of(), {**FEATURES, "bad": bad})
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
