"""Deletion vectors of Delta tables: in the log, or in files that contain the vectors of several data files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from aiostream_data.dataset.deletion_vectors import DamagedVectorError, rows_of_body, rows_of_vector
from aiostream_data.dataset.delta_log import DeltaLog, Vector
from aiostream_data.errors import MissingExtraError, TableSnapshotError

_FEATURE: Final = "deletionVectors"
_THREADS: Final = 16
_UUID_CHARACTERS: Final = 20
_ADDED_NBYTES: Final = 8
"""Bytes of a vector in a file in addition to its size in the log: its length and its checksum."""

_PADDING: Final = 3
"""Maximum number of bytes behind a vector in the log: Z85 has groups of 4 bytes. Some writers count them."""

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS: Final = {character: digit for digit, character in enumerate(_Z85)}
_WEIGHTS: Final = (85**4, 85**3, 85**2, 85, 1)

_UNKNOWN_ROWS: Final = 1 << 48
"""Assumed number of rows of a data file if the log lacks it. The vector is checked again when the file is opened."""


class DeltaVectors:
    """Deletion vectors of one version of a table.

    Args:
        pyarrow: The module.
        table: URL of the table, for error messages.
        files: Filesystem of PyArrow whose root is the folder of the table.
        open_elsewhere: Returns the filesystem and the path of a file that the log names by a URL.
    """

    def __init__(self, pyarrow: Any, table: str, files: Any, open_elsewhere: Callable[[str], tuple[Any, str]]) -> None:
        self._pyarrow = pyarrow
        self._table = table
        self._files = files
        self._open_elsewhere = open_elsewhere

    def deleted(self, version: int, rows: Mapping[str, int | None]) -> dict[str, bytes]:
        """Return the deleted rows of each data file by its path, as :class:`.SnapshotFormat` stores them. Blocks.

        Args:
            version: Number of the version.
            rows: Paths of the data files in the log, and their numbers of rows, if the log has them.

        Raises:
            TableSnapshotError: The log or a vector is damaged.
            MissingExtraError: pyroaring is not installed.
        """
        vectors = DeltaLog(self._pyarrow, self._table, self._files, version).vectors()
        for path in vectors.keys() - rows.keys():
            raise self._error(f"the vectors name {path}, which is no data file")
        if vectors:
            _check_pyroaring()

        def read(path: str) -> bytes:
            count = rows[path]
            found = self._rows(path, vectors[path], _UNKNOWN_ROWS if count is None else count)
            return np.unique(found).tobytes()  # a damaged bitmap can have values in another order

        with ThreadPoolExecutor(_THREADS) as threads:
            return dict(zip(vectors, threads.map(read, vectors), strict=True))

    def _rows(self, path: str, vector: Vector, rows: int) -> NDArray[np.int64]:
        try:
            found = _inline(vector, rows) if vector.storage == "i" else self._stored(vector, rows)
            if len(found) != vector.rows:
                raise DamagedVectorError(f"it deletes {len(found)} rows, but {vector.rows} in the log")
        except (DamagedVectorError, OSError) as error:
            raise self._error(f"the deletion vector of {path} cannot be read: {error}") from error
        return found

    def _stored(self, vector: Vector, rows: int) -> NDArray[np.int64]:
        files, name = self._place(vector)
        with files.open_input_file(name) as file:
            start, nbytes = vector.offset or 0, vector.nbytes + _ADDED_NBYTES
            if start + nbytes > file.size():
                raise DamagedVectorError("a deletion vector lies outside of the file")
            file.seek(start)
            return rows_of_vector(file.read(nbytes), rows)

    def _place(self, vector: Vector) -> tuple[Any, str]:
        """Return the filesystem and the path of a file with vectors."""
        if vector.storage == "u":
            prefix, number = vector.path[:-_UUID_CHARACTERS], UUID(bytes=_decoded(vector.path[-_UUID_CHARACTERS:]))
            name = f"deletion_vector_{number}.bin"
            if not prefix:
                return self._files, name
            if not prefix.isalnum():
                raise DamagedVectorError("its folder has a name with other characters than letters and digits")
            return self._files, f"{prefix}/{name}"
        if vector.storage == "p":
            return self._open_elsewhere(vector.path)
        raise DamagedVectorError(f"its kind {vector.storage!r} is unknown")

    def _error(self, reason: str) -> TableSnapshotError:
        return TableSnapshotError(self._table, _FEATURE, reason)


def _inline(vector: Vector, rows: int) -> NDArray[np.int64]:
    body = _decoded(vector.path)
    if not vector.nbytes <= len(body) <= vector.nbytes + _PADDING:
        raise DamagedVectorError("it has another length than the log says")
    return rows_of_body(body[: vector.nbytes], rows, _PADDING)


def _decoded(text: str) -> bytes:
    """Decode a text in Z85."""
    found = bytearray()
    try:
        for at in range(0, len(text), 5):
            digits = [_DIGITS[each] for each in text[at : at + 5]]
            number = sum(digit * weight for digit, weight in zip(digits, _WEIGHTS, strict=True))
            found += number.to_bytes(4, "big")
    except (KeyError, ValueError, OverflowError) as error:
        raise DamagedVectorError("its text is not Z85") from error
    return bytes(found)


def _check_pyroaring() -> None:
    try:
        import pyroaring  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("deletion vectors need the extra: pip install 'aiostream-data[delta]'") from error
