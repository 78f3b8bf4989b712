"""Convert the records of a WebDataset shard to samples: dicts with the key and the bytes of each member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.tar_py import DATA, EXT_HASH, EXT_NBYTES, KEY_NBYTES, NAME, NBYTES, ROW
from aiostream_data.formats.tar_samples import KEY
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.structure import LEAF, Structure

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class WebDatasetSamples:
    """Row-wise decoder that converts a part of a tar archive to ``{"__key__": str, extension: bytes}``.

    If all samples of a chunk have the same extensions, the result has one column per extension, without a copy of the
    bytes. The extensions of each sample are in alphabetical order, so the order of members in a shard is irrelevant.
    """

    wraps: ClassVar[bool] = False
    label: ClassVar[str] = "webdataset"

    def parse(self, chunk: Columns, describe: Callable[[int], tuple[str, int]]) -> Chunk:
        """Convert all records of a chunk."""
        (records,) = chunk.leaves
        assert isinstance(records, VarColumn)
        values, starts = np.ascontiguousarray(records.values), records.starts
        walk = _native.walk_tar(values, starts, starts + records.lengths)
        members = walk.table[walk.table[:, KEY_NBYTES] >= 0]
        samples = alike_samples(walk.names, members, len(chunk))
        if samples is None:
            return Items(_dicts(values, walk.names, members, len(chunk)), chunk.ids, None, chunk.made_of)
        table = samples.members
        leaves = [
            VarColumn(values, table[:, at, DATA].copy(), table[:, at, NBYTES].copy()) for at in range(table.shape[1])
        ]
        return Columns(samples.structure, (samples.keys, *leaves), chunk.ids, chunk.lease, chunk.made_of)


class AlikeSamples(NamedTuple):
    """Samples that all have the same extensions.

    Attributes:
        extensions: Extensions in alphabetical order.
        members: Rows of the table of members, int64 of shape (samples, extensions, columns of the table).
        keys: Key of each sample.
    """

    extensions: tuple[str, ...]
    members: Numbers
    keys: VarColumn

    @property
    def structure(self) -> Structure:
        """Structure of the decoded samples."""
        return Structure("dict", (KEY, *self.extensions), (LEAF,) * (len(self.extensions) + 1))


def alike_samples(names: NDArray[np.uint8], members: Numbers, count: int) -> AlikeSamples | None:
    """Group the members of ``count`` samples. Return None if samples differ in extensions, or a name is not UTF-8.

    Args:
        names: Names of the members; see :class:`.TarWalk`.
        members: Rows of the table of members that have a key, in the order of the archive. Their column ``ROW`` is the
            number of the sample.
    """
    each = len(members) // count if count else 0
    if not each or (np.bincount(members[:, ROW], minlength=count) != each).any() or not _is_utf8(names):
        return None
    table = members.reshape(count, each, -1)
    order = np.argsort(table[:, :, EXT_HASH], axis=1)
    table = np.take_along_axis(table, order[:, :, None], axis=1)
    hashes = table[:, :, EXT_HASH]
    if (hashes != hashes[0]).any():
        return None
    extensions = [_extension(names, member) for member in table[0]]
    if len(set(extensions)) != each:
        return None
    by_name = sorted(range(each), key=extensions.__getitem__)
    keys = VarColumn(names, table[:, 0, NAME].copy(), table[:, 0, KEY_NBYTES].copy(), "str")
    return AlikeSamples(tuple(sorted(extensions)), table[:, by_name], keys)


def _dicts(values: NDArray[np.uint8], names: NDArray[np.uint8], members: Numbers, count: int) -> list[dict[str, Any]]:
    """Return one dict per sample."""
    samples: list[dict[str, Any]] = [{} for _ in range(count)]
    found: list[list[tuple[str, bytes]]] = [[] for _ in range(count)]
    for member in members:
        row, start = int(member[ROW]), int(member[DATA])
        found[row].append((_extension(names, member), values[start : start + int(member[NBYTES])].tobytes()))
        if not samples[row]:
            name = int(member[NAME])
            samples[row][KEY] = _text(names[name : name + int(member[KEY_NBYTES])])
    for sample, fields in zip(samples, found, strict=True):
        sample.update(sorted(fields))
    return samples


def _extension(names: NDArray[np.uint8], member: Numbers) -> str:
    start = int(member[NAME] + member[KEY_NBYTES]) + 1
    return _text(names[start : start + int(member[EXT_NBYTES])]).lower()


def _text(name: NDArray[np.uint8]) -> str:
    """Return a name as text. Bytes that are not UTF-8 become ``\\xNN``, so that every name can be printed."""
    return name.tobytes().decode("utf-8", "backslashreplace")


def _is_utf8(names: NDArray[np.uint8]) -> bool:
    try:
        str(names.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
