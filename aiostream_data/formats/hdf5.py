"""HDF5 files, decoded by h5py: rows of datasets along their first axis.

The library reads through a file object over the parts of the file that are in memory. While it opens the file, each
read of other bytes fails, the engine reads these bytes, and the library opens the file again. The places of the chunks
are then known, so that a group of rows needs only the bytes of its chunks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import AiostreamError, CorruptRecordError, PlanError
from aiostream_data.formats.hdf5_arrays import Hdf5Array, chunk_count, described, refused
from aiostream_data.formats.hdf5_file import PartlyKnownFile, load_h5py
from aiostream_data.formats.hdf5_heaps import check_heaps, check_strings
from aiostream_data.formats.hdf5_pages import MetadataPages
from aiostream_data.formats.hdf5_rows import plain_rows
from aiostream_data.formats.hdf5_user_block import DirectoryBehindBlock, behind, user_block
from aiostream_data.formats.row_groups import Directory, RowGroup, Steps, TableRows, joined
from aiostream_data.rows.columns import Column
from aiostream_data.rows.records import ByteRange
from aiostream_data.rows.structure import Structure
from aiostream_data.safe_url import safe_url, shorten

T = TypeVar("T")

_GROUP_NBYTES: Final = 4 << 20
"""Size of the rows that are read together, if chunks are not larger."""

_MOST_PARTS: Final = 64
"""Maximum number of parts in which a damaged group is read again."""

_GROUP_ROWS: Final = 1 << 18
_MOST_NESTED: Final = 32
_MOST_DATASETS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Hdf5Format:
    """Format of HDF5 files.

    Attributes:
        fields: Names of datasets, or of groups whose datasets are read, such as ``a/b``. None for all datasets.
    """

    fields: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return "hdf5"

    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        """Read the metadata of the datasets, and the places of their chunks."""
        block = yield from user_block(url, nbytes)
        found = yield from behind(block, self._directory(load_h5py(), url, nbytes - block))
        return DirectoryBehindBlock(block, found) if block else found

    def _directory(self, h5py: Any, url: str, nbytes: int) -> Steps[Hdf5Directory]:
        """Read the directory of a file without its user block."""
        pages = MetadataPages(url, nbytes)
        wanted = pages.around(ByteRange(0, 1))
        while wanted:
            parts = yield wanted
            pages.add(wanted, parts)
            file = PartlyKnownFile(nbytes, pages.known)
            found = self._arrays(h5py, url, nbytes, file)
            if found is not None:
                return Hdf5Directory(h5py, url, nbytes, found, pages.known)
            assert file.missing is not None
            wanted = pages.of_nodes(file.wanted) or pages.around(file.missing)
        raise CorruptRecordError(url, 0, "the metadata of the HDF5 file cannot be read")

    def _arrays(self, h5py: Any, url: str, nbytes: int, file: PartlyKnownFile) -> list[Hdf5Array] | None:
        """Return the datasets; None if bytes are missing."""
        try:
            with opened(h5py, url, file) as root:
                paths = list(_chosen(h5py, url, root, self.fields))
                found = []
                for path, dataset in paths:
                    file.chunks, file.axes = chunk_count(dataset), dataset.ndim
                    found.append(described(h5py, url, path, dataset, nbytes))
                return found
        except AiostreamError:
            if file.missing is None:
                raise
        return None


@contextlib.contextmanager
def opened(h5py: Any, url: str, file: PartlyKnownFile) -> Iterator[Any]:
    """Open an HDF5 file, and report damage that the library finds.

    Raises:
        CorruptRecordError: The file is damaged, or bytes are missing.
    """
    try:
        with h5py.File(file, "r") as root:
            yield root
    except (AiostreamError, MemoryError):
        raise
    except Exception as error:  # the library raises errors of many classes for hostile files
        reason = f"the HDF5 library cannot read the file: {type(error).__name__}: {shorten(str(error))}"
        error.__traceback__ = None  # its frames hold a property list, which crashes the process if it is left at exit
        raise CorruptRecordError(url, 0, reason) from error


def _chosen(h5py: Any, url: str, root: Any, fields: Sequence[str] | None) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the chosen datasets with their paths.

    Raises:
        PlanError: A dataset does not exist, or is a link.
        CorruptRecordError: A group lists a member that it does not have.
    """
    found: dict[tuple[str, ...], Any] = {}
    for name in fields if fields is not None else [""]:
        path = tuple(part for part in name.split("/") if part)
        place = root
        for stop in range(1, len(path) + 1):
            place = _child(h5py, url, place, path[:stop])
        found.update(_below(h5py, url, place, path))
    if not found:
        raise PlanError(f"{safe_url(url)} has no datasets{'' if fields is None else ' of these names'}")
    yield from sorted(found.items()) if fields is None else found.items()


def _below(h5py: Any, url: str, place: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the datasets in a group, or the dataset itself."""
    if isinstance(place, h5py.Dataset):
        yield path, place
    elif isinstance(place, h5py.Group):
        if len(path) > _MOST_NESTED or len(place) > _MOST_DATASETS:
            raise refused(url, "/".join(path), "contains too many groups or datasets")
        for name in place:
            yield from _below(h5py, url, _child(h5py, url, place, (*path, name)), (*path, name))


def _child(h5py: Any, url: str, group: Any, path: tuple[str, ...]) -> Any:
    """Return a member of a group. Links to other files, and names that stand for other members, are refused."""
    name = path[-1]
    link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
    if link is None:
        beside = list(group) if isinstance(group, h5py.Group) else []
        if name in beside:
            reason = f"the group lists {'/'.join(path)!r}, but the HDF5 library cannot find it"
            raise CorruptRecordError(url, 0, reason)
        known = ", ".join(map(repr, beside[:20])) or "none"
        raise PlanError(f"{safe_url(url)} has no dataset {'/'.join(path)!r}. Names beside it: {known}.")
    if not isinstance(link, h5py.HardLink):
        raise refused(url, "/".join(path), "is a link, which is not supported")
    return group[name]


class Hdf5Directory:
    """Datasets of one file that have the same number of rows.

    Args:
        h5py: The library.
        url: URL of the file, for error messages.
        nbytes: Size of the file in bytes.
        arrays: The datasets.
        metadata: Parts of the file that contain the metadata of the datasets.

    Raises:
        PlanError: Two datasets differ in their number of rows.
    """

    def __init__(
        self, h5py: Any, url: str, nbytes: int, arrays: list[Hdf5Array], metadata: Sequence[tuple[int, memoryview]]
    ) -> None:
        self._h5py = h5py
        self._url = url
        self._nbytes = nbytes
        self._arrays = arrays
        self._metadata = metadata
        for array in arrays:
            if array.shape[0] != self.rows:
                rows = f"has {array.shape[0]} rows, but {arrays[0].name!r} has {self.rows}"
                raise refused(url, array.name, rows)

    @property
    def rows(self) -> int:
        return self._arrays[0].shape[0]

    @property
    def types(self) -> Mapping[str, str | None]:
        return {name: kind for array in self._arrays for name, kind in array.types.items()}

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        is_whole = any(array.is_indirect for array in self._arrays)
        step = max(1, self.rows) if is_whole else self._step()
        start = first_row // step * step if first_row < self.rows else self.rows
        for first in range(start, self.rows, step):
            yield self._group(first, min(first + step, self.rows), is_whole)

    def separated(self, group: RowGroup) -> list[RowGroup]:
        """Return groups of single chunks, or of several small ones."""
        has_chunks = any(array.chunk_sizes for array in self._arrays)
        if not has_chunks or any(array.is_indirect for array in self._arrays):  # these would read the whole file again
            return [group]
        chunk = self._chunk_rows()
        step = chunk * -(-group.rows // (chunk * _MOST_PARTS))
        stop = group.first_row + group.rows
        return [self._group(first, min(first + step, stop), False) for first in range(group.first_row, stop, step)]

    def _group(self, first: int, stop: int, is_whole: bool) -> RowGroup:
        return RowGroup(first, stop - first, self._ranges(first, stop, is_whole), self._decoded(stop - first))

    def _chunk_rows(self) -> int:
        return max(array.chunk_rows for array in self._arrays)

    def _step(self) -> int:
        """Return the number of rows to read together: whole chunks of the dataset with the longest chunks."""
        row_nbytes = sum(array.row_nbytes for array in self._arrays)
        rows = min(_GROUP_ROWS, max(1, _GROUP_NBYTES // max(1, row_nbytes)))
        chunk = self._chunk_rows()
        return max(1, rows // chunk) * chunk

    def _ranges(self, first: int, stop: int, is_whole: bool) -> tuple[ByteRange, ...]:
        if is_whole:
            return (ByteRange(0, self._nbytes),)
        return joined(part for array in self._arrays for part in array.ranges(first, stop))

    def _decoded(self, rows: int) -> int:
        """Return the memory that decoding needs: the rows, their columns, and a chunk."""
        return sum(2 * rows * (array.row_nbytes + 16) + 2 * array.chunk_nbytes for array in self._arrays)

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return group.nbytes

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        known = [(place.start, part) for place, part in zip(group.ranges, parts, strict=True)]
        indirect = [array for array in self._arrays if array.is_indirect]
        if indirect:
            check_heaps(self._url, parts[0])
        for array in indirect:
            if not array.is_filtered:
                check_strings(self._url, parts[0], array.ranges(0, self.rows))
        file = PartlyKnownFile(self._nbytes, known, self._metadata)
        stop = group.first_row + group.rows
        structures: list[Structure] = []
        leaves: list[Column] = []
        found = [plain_rows(array, group.first_row, stop, file.content) for array in self._arrays]
        others = [array for array, values in zip(self._arrays, found, strict=True) if values is None]
        read = iter(self._read(file, others, group.first_row, stop))
        for array, plain in zip(self._arrays, found, strict=True):
            structure, columns = array.leaves(next(read) if plain is None else plain)
            structures.append(structure)
            leaves += columns
        rows = np.arange(group.first_row, stop, dtype=np.int64)
        paths = [array.path for array in self._arrays]
        return [TableRows(_tree(paths, structures), tuple(leaves), rows)]

    def _read(self, file: PartlyKnownFile, arrays: Sequence[Hdf5Array], first: int, stop: int) -> list[NDArray[Any]]:
        """Let the library read the rows ``first`` to ``stop`` of datasets."""
        if not arrays:
            return []
        found = []
        with opened(self._h5py, self._url, file) as root:
            datasets = [root[array.name] for array in arrays]
            for dataset in datasets:
                file.chunks = chunk_count(dataset)
                found.append(np.asarray(dataset[first:stop]))
        return found


def _tree(paths: Sequence[tuple[str, ...]], leaves: Sequence[Structure]) -> Structure:
    """Return nested dicts with one structure per path. Paths with a common start are next to each other."""
    if paths == [()]:
        return leaves[0]
    names = tuple(dict.fromkeys(path[0] for path in paths))
    below = [[at for at, path in enumerate(paths) if path[0] == name] for name in names]
    children = tuple(_tree([paths[at][1:] for at in part], [leaves[at] for at in part]) for part in below)
    return Structure("dict", names, children)
