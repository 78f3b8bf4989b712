"""Folders as TensorFlow Datasets prepares them, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.formats.tfrecord_writer import frame


def feature(kind: str, **content: Any) -> dict[str, Any]:
    """Return the description of a feature, such as ``feature("Text", text={})``."""
    return {"pythonClassName": f"tensorflow_datasets.core.features.{kind.lower()}_feature.{kind}", **content}


def tensor(dtype: str, *shape: int, **more: Any) -> dict[str, Any]:
    axes = {"dimensions": [str(axis) for axis in shape]} if shape else {}
    return feature("Tensor", tensor={"shape": axes, "dtype": dtype, "encoding": "none", **more})


def sequence(inner: dict[str, Any], length: int = -1) -> dict[str, Any]:
    return feature("Sequence", sequence={"feature": inner, "length": str(length)})


def group(features: Mapping[str, Any]) -> dict[str, Any]:
    return feature("FeaturesDict", featuresDict={"features": dict(features)})


FEATURES = {
    "label": feature("ClassLabel", classLabel={"numClasses": "3"}),
    "n": tensor("int64"),
    "text": feature("Text", text={}),
    "tokens": sequence(tensor("int32")),
}


def element(n: int) -> dict[str, Any]:
    """Return an element of ``FEATURES``."""
    return {"label": n % 3, "n": n, "text": f"naïve {n}", "tokens": np.arange(n % 4, dtype=np.int32)}


def record(n: int) -> bytes:
    """Return the record of ``element(n)``."""
    return asd.encode_example(element(n))


def info(shards: Mapping[str, Sequence[int]], **more: Any) -> dict[str, Any]:
    """Return the description of a dataset whose splits have shards with these numbers of records."""
    splits = [{"name": name, "shardLengths": [str(rows) for rows in lengths]} for name, lengths in shards.items()]
    return {"name": "made", "version": "1.0.0", "fileFormat": "tfrecord", "splits": splits, **more}


def files(
    splits: Mapping[str, Sequence[Sequence[bytes]]], features: Mapping[str, Any] = FEATURES, **more: Any
) -> dict[str, bytes]:
    """Return the files of a folder whose splits have shards with these records, by name."""
    lengths = {name: [len(records) for records in shards] for name, shards in splits.items()}
    found = {
        "dataset_info.json": json.dumps(info(lengths, **more)).encode(),
        "features.json": json.dumps(group(features)).encode(),
    }
    for name, shards in splits.items():
        for number, records in enumerate(shards):
            file = f"made-{name}.tfrecord-{number:05}-of-{len(shards):05}"
            found[file] = b"".join(map(frame, records))
    return found


def write_folder(
    folder: Path,
    splits: Mapping[str, Sequence[Sequence[bytes]]],
    features: Mapping[str, Any] = FEATURES,
    **more: Any,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(splits, features, **more).items():
        (folder / name).write_bytes(content)
    return folder


LENGTHS = {"train": (3, 0, 5, 2), "test": (4,)}


def records_of(lengths: Mapping[str, Sequence[int]] = LENGTHS) -> dict[str, list[list[bytes]]]:
    """Return the records of each shard. Their numbers begin with 0 in ``train``, and with 100 in ``test``."""
    found: dict[str, list[list[bytes]]] = {}
    for name, shards in lengths.items():
        numbers = iter(range(100 * len(found), 100 * len(found) + sum(shards)))
        found[name] = [[record(next(numbers)) for _ in range(rows)] for rows in shards]
    return found


def plain(value: Any) -> Any:
    """Return a value without arrays and bytes, as ``make_tfds.py`` writes it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def numbers(dataset: Dataset[Any]) -> list[int]:
    """Return the value ``n`` of each element."""
    return [int(row["n"]) for row in dataset]


def described(folder: Path, name: str, content: Any) -> Path:
    """Write the description with the name ``name`` into a folder. Return the folder."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder
