"""Log of a Delta table: find the deletion vectors of one version, which the library deltalake reads only in part.

A checkpoint has the files of a version, and each later commit adds and removes files. A removal names a file together
with its deletion vector, so a commit can add the same file with another vector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from aiostream_data.dataset.deletion_vectors import DamagedVectorError
from aiostream_data.errors import TableSnapshotError

_FOLDER: Final = "_delta_log"
_FEATURE: Final = "deletionVectors"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_COLUMNS: Final = ("add.path", "add.deletionVector", "sidecar.path")
_BATCH_ROWS: Final = 1 << 14
_THREADS: Final = 16
_DAMAGED: Final = (DamagedVectorError, KeyError, TypeError, AttributeError, ValueError)


class Vector(NamedTuple):
    """Description of a deletion vector in the log.

    Attributes:
        storage: ``i`` for a vector in the log, ``u`` for a file of the table, ``p`` for a file with a URL.
        path: Encoded vector, encoded name of the file, or URL of the file.
        offset: Place of the vector in the file.
        nbytes: Size of the vector, in bytes.
        rows: Number of the deleted rows.
    """

    storage: str
    path: str
    offset: int | None
    nbytes: int
    rows: int

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Vector:
        """Return the description that an entry of the log has.

        Raises:
            DamagedVectorError: A value has another type, or a number is negative.
            KeyError: A value is missing.
        """
        offset = entry.get("offset")
        vector = cls(entry["storageType"], entry["pathOrInlineDv"], offset, entry["sizeInBytes"], entry["cardinality"])
        numbers = (vector.offset or 0, vector.nbytes, vector.rows)
        texts = (vector.storage, vector.path)
        if not all(isinstance(each, int) for each in numbers) or not all(isinstance(each, str) for each in texts):
            raise DamagedVectorError("a deletion vector has values of other types")
        if min(numbers) < 0:
            raise DamagedVectorError("a deletion vector has negative numbers")
        return vector


class DeltaLog:
    """Log of one version.

    Args:
        pyarrow: The module.
        table: URL of the table, for error messages.
        files: Filesystem of PyArrow whose root is the folder of the table.
        version: Number of the version.
    """

    def __init__(self, pyarrow: Any, table: str, files: Any, version: int) -> None:
        self._pyarrow = pyarrow
        self._table = table
        self._files = files
        self._version = version

    def vectors(self) -> dict[str, Vector]:
        """Return the deletion vectors of the version by the paths of their data files, as the log has them.

        Raises:
            TableSnapshotError: A part of the log is missing or damaged.
        """
        found: dict[tuple[str, object], Vector] = {}
        with ThreadPoolExecutor(_THREADS) as threads:
            for is_added, path, vector in chain.from_iterable(threads.map(self._changes, self._parts())):
                if is_added:
                    found[path, vector[:3]] = vector
                else:
                    found.pop((path, vector[:3]), None)
        by_path = {path: vector for (path, _), vector in found.items()}
        if len(by_path) < len(found):
            raise self._error("the log has several deletion vectors of one data file")
        return by_path

    def _changes(self, name: str) -> list[tuple[bool, str, Vector]]:
        """Return the vectors that a file of the log adds or removes, in order.

        Each item is True for an added vector, then the path of the data file, and the vector.
        """
        try:
            actions = self._file_actions(f"{_FOLDER}/{name}")
            return [(action == "add", _path_in(entry), Vector.of(entry["deletionVector"])) for action, entry in actions]
        except (*_DAMAGED, self._pyarrow.ArrowException) as error:
            raise self._error(f"the file {name} of the log is damaged: {error!r}") from error

    def _parts(self) -> Iterator[str]:
        """Yield the names of the newest checkpoint and of the later commits, oldest first."""
        selector = self._pyarrow.fs.FileSelector(_FOLDER)
        names = sorted(each.base_name for each in self._files.get_file_info(selector))
        first, parts = max(self._checkpoints(names), default=(-1, []))
        yield from parts
        commits = {int(match[1]): match[0] for match in map(_COMMIT.fullmatch, names) if match}
        for number in range(first + 1, self._version + 1):
            if number not in commits:
                raise self._error(f"the log lacks commit {number}")
            yield commits[number]

    def _checkpoints(self, names: list[str]) -> Iterator[tuple[int, list[str]]]:
        """Yield the versions of the complete checkpoints, and the names of their files."""
        several: dict[tuple[int, int], list[str]] = {}
        for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
            number = int(match[1])
            if number > self._version:
                continue
            if match[3] is None:
                yield number, [match[0]]
            else:
                several.setdefault((number, int(match[3])), []).append(match[0])
        yield from ((number, parts) for (number, count), parts in several.items() if len(parts) == count)

    def _file_actions(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the actions on files with deletion vectors."""
        for entry in self._entries(path):
            for action in ("add", "remove"):
                if entry.get(action) and entry[action].get("deletionVector"):
                    yield action, entry[action]
            if entry.get("sidecar"):
                name = unquote(entry["sidecar"]["path"]).rpartition("/")[2]
                yield from self._file_actions(f"{_FOLDER}/_sidecars/{name}")

    def _entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        with self._files.open_input_file(path) as file:
            if path.endswith(".json"):
                yield from map(json.loads, filter(bytes.strip, file.read().splitlines()))
                return
            stored = self._pyarrow.parquet.ParquetFile(file)
            for batch in stored.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
                yield from batch.to_pylist()

    def _error(self, reason: str) -> TableSnapshotError:
        return TableSnapshotError(self._table, _FEATURE, reason)


def _path_in(entry: Mapping[str, Any]) -> str:
    path = entry["path"]
    if not isinstance(path, str):
        raise DamagedVectorError("the path of a data file is no text")
    return path
