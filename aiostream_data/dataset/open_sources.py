"""Complete the sources of a plan with facts that their files contain, when a dataset is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import MappingProxyType
from typing import Final

from aiostream_data.plan.base import Node, walk

_SCHEMAS: Final = "csv_schemas", "with_schemas"
_SNAPSHOTS: Final = "table_snapshots", "with_snapshots"
_COMPLETIONS: Final = MappingProxyType(
    {
        "CsvParserToInfer": _SCHEMAS,
        "JsonParserToInfer": _SCHEMAS,
        "ImageFolderFormat": ("image_folders", "with_classes"),
        "MdsSamples": ("mds_folders", "with_columns"),
        "TfdsExamples": ("tfds_folders", "with_features"),
        "DeltaTable": _SNAPSHOTS,
        "IcebergTable": _SNAPSHOTS,
    }
)
"""For each class of a format, decoder or table: module and name of the function that completes such sources.

A module is imported only if the plan contains such a source.
"""


def completed(plan: Node) -> Node:
    """Return the plan with inferred schemas of text files, classes of image folders, columns of MDS shards, shards and
    features of TensorFlow Datasets, and data files of Delta and Iceberg tables. Blocks.

    Raises:
        PlanError, DataError: The facts cannot be found; see the functions called here.
        StorageError: A store did not answer.
    """
    needed = {_COMPLETIONS[name] for node in walk(plan) for name in _classes_of(node) if name in _COMPLETIONS}
    for module, name in sorted(needed):
        complete: Callable[[Node], Node] = getattr(import_module(f"aiostream_data.dataset.{module}"), name)
        plan = complete(plan)
    return plan


def _classes_of(node: Node) -> Iterator[str]:
    """Yield the names of the classes of a source's format, decoder and table."""
    for name in ("format", "decoder", "table"):
        yield type(getattr(node, name, None)).__name__
