"""Write the folder ``tests/data/tfds/everything`` with TensorFlow Datasets, and the values that it reads from it.

    pip install tensorflow-datasets tensorflow && python tests/data/make_tfds.py

The tests compare what the package reads with ``expected.json``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

FOLDER = Path(__file__).parent / "tfds"
SPLITS = {"train": 7, "test": 3}
SLICES = ("train[:3]", "train[2:5]", "train[-2:]", "train[:50%]", "train[25%:75%]", "train[-30%:]", "train[1shard]")


def features() -> Any:
    kinds = tfds.features
    return kinds.FeaturesDict(
        {
            "id": np.int64,
            "image": kinds.Image(shape=(None, 3, 3), encoding_format="png"),
            "grey": kinds.Image(shape=(2, 2, 1), encoding_format="png"),
            "depth": kinds.Image(shape=(2, 2, 1), dtype=np.float32, encoding_format="png"),
            "label": kinds.ClassLabel(names=["cat", "dog", "owl"]),
            "text": kinds.Text(),
            "raw": kinds.Tensor(shape=(), dtype=np.str_),
            "single": kinds.Scalar(np.float32),
            "double": np.float64,
            "flag": np.bool_,
            "large": kinds.Scalar(np.uint64),
            "matrix": kinds.Tensor(shape=(2, 3), dtype=np.uint8),
            "points": kinds.Tensor(shape=(None, 2), dtype=np.float32),
            "columns": kinds.Tensor(shape=(2, None), dtype=np.int16),
            "stored": kinds.Tensor(shape=(2, 2), dtype=np.uint16, encoding="bytes"),
            "packed": kinds.Tensor(shape=(None, 2), dtype=np.float64, encoding="zlib"),
            "free": kinds.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib"),
            "maybe": kinds.Scalar(np.int32, optional=True),
            "box": kinds.BBoxFeature(),
            "meta": {"source": kinds.Text(), "place": {"row": np.int32, "names": kinds.Sequence(kinds.Text())}},
            "tokens": kinds.Sequence(np.int32),
            "pair": kinds.Sequence(np.float32, length=2),
            "objects": kinds.Sequence(
                {"box": kinds.BBoxFeature(), "label": kinds.ClassLabel(num_classes=5), "name": kinds.Text()}
            ),
            "frames": kinds.Sequence(kinds.Image(shape=(2, 2, 3), encoding_format="png")),
            "codes": kinds.Sequence(kinds.Tensor(shape=(2,), dtype=np.uint8, encoding="bytes")),
            "words": kinds.Sequence(kinds.Sequence(kinds.Text())),
            "lines": kinds.Sequence({"points": kinds.Sequence(kinds.Tensor(shape=(2,), dtype=np.int64))}),
            "deep": kinds.Sequence(kinds.Sequence(kinds.Sequence(np.float32))),
            "clip": kinds.Video(shape=(None, 2, 2, 3), encoding_format="png"),
            "sound": kinds.Audio(shape=(None,)),
            "steps": kinds.Dataset({"action": kinds.Tensor(shape=(2,), dtype=np.float32), "is_last": np.bool_}),
            "speech": kinds.Translation(languages=["en", "fr"]),
            "versions": kinds.TranslationVariableLanguages(languages=["en", "fr"]),
        }
    )


def pixels(row: int, *shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) * 7 + row * 11).astype(np.uint8)


def example(row: int) -> dict[str, Any]:
    return {
        "id": row,
        "image": pixels(row, 1 + row % 3, 3, 3),
        "grey": pixels(row, 2, 2, 1),
        "depth": np.arange(4, dtype=np.float32).reshape(2, 2, 1) / (row + 1),
        "label": row % 3,
        "text": "naïve " * row,
        "raw": f"raw {row}",
        "single": row / 3,
        "double": row / 7,
        "flag": row % 2 == 1,
        "large": 2**64 - 1 - row,
        "matrix": pixels(row, 2, 3),
        "points": np.arange(2 * row, dtype=np.float32).reshape(row, 2),
        "columns": np.arange(2 * row, dtype=np.int16).reshape(2, row),
        "stored": np.full((2, 2), 1000 * row, np.uint16),
        "packed": np.arange(2 * row, dtype=np.float64).reshape(row, 2) / 3,
        "free": np.arange(row * (row + 1), dtype=np.int32).reshape(row, row + 1),
        "maybe": None if row % 2 else row,
        "box": tfds.features.BBox(0.0, 0.1, 0.5, 1.0 - row / 100),
        "meta": {"source": f"source {row}", "place": {"row": row, "names": ["a"] * (row % 3)}},
        "tokens": list(range(row)),
        "pair": [row, row + 0.5],
        "objects": [
            {"box": tfds.features.BBox(0.0, 0.0, 1.0, 1 / (each + 1)), "label": each, "name": f"object {each}"}
            for each in range(row % 4)
        ],
        "frames": [pixels(row + each, 2, 2, 3) for each in range(row % 3)],
        "codes": [np.array([row, each], np.uint8) for each in range(row % 3)],
        "words": [["x"] * each for each in range(row % 4)],
        "lines": [{"points": [[each, row]] * each} for each in range(row % 3)],
        "deep": [[[row, each]] * each + [[]] for each in range(row % 3)],
        "clip": [pixels(row + each, 2, 2, 3) for each in range(1 + row % 2)],
        "steps": [{"action": [row, each], "is_last": each == row % 3} for each in range(1 + row % 3)],
        "sound": np.arange(row, dtype=np.int64) - 2,
        "speech": {"en": f"hello {row}", "fr": f"salut {row}"},
        "versions": {"en": "hello", "fr": ["salut", "bonjour"]} if row % 2 else {"en": "hello"},
    }


class Everything(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """A row of each kind of feature."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=features())

    def _split_generators(self, dl_manager: Any) -> Any:
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        first = 0 if split == "train" else 100
        for row in range(SPLITS[split]):
            yield row, example(row) | {"id": first + row}


def plain(value: Any) -> Any:
    """Return a value as JSON: text for bytes, lists for arrays."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (tf.RaggedTensor, tf.compat.v1.ragged.RaggedTensorValue)):
        return plain(value.to_list())
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):  # a dataset
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def rows_of(builder: Any, split: str) -> list[Any]:
    config = tfds.ReadConfig(interleave_cycle_length=1)
    return [plain(row) for row in tfds.as_numpy(builder.as_dataset(split=split, read_config=config))]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        builder = Everything(data_dir=place)
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(builder.data_dir, FOLDER / "everything")
        rows = {split: rows_of(builder, split) for split in SPLITS}
        ids = {split: [row["id"] for row in rows_of(builder, split)] for split in (*SLICES, "all", "test+train[:2]")}
    expected = {"rows": rows, "ids": ids}
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
