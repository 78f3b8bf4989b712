"""Compare the size of padded arrays with the memory limit before allocating them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import MemoryBudgetError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import StructureError, structure_of
from aiostream_data.transforms.string_leaves import are_strings

OF_BATCHES: Final = "Use smaller batches, bucket_by_sequence_length() or ragged_batch(), or shorten the row in map()."
OF_STRINGS: Final = "Use smaller batches, bucket_by_sequence_length() or strings='ragged', or shorten the row in map()."
OF_PACKED: Final = "Reduce max_length, or name fewer leaves with fields=."


class PaddedRoom:
    """Memory limit for the padded leaves of one element.

    An element may exceed the limit if it needs no more memory than its rows do without padding: such rows pass in all
    other operators, with a warning.

    Args:
        limit: Memory limit in bytes; None for no limit.
        cure: Sentence for the error message, with the ways to avoid the error.
    """

    def __init__(self, limit: int | None, cure: str = OF_BATCHES) -> None:
        self._limit = limit
        self._cure = cure
        self._padded = 0
        self._content = 0

    def take(
        self, path: str, shape: Sequence[int], itemsize: int, content: int, longest: Callable[[], str] | None = None
    ) -> None:
        """Count a leaf of the element.

        Args:
            shape: Shape of the padded leaf.
            content: Size in bytes of the rows without padding.
            longest: Function that returns the name of the longest row for the error message.

        Raises:
            MemoryBudgetError: The leaves counted so far exceed the limit because of their padding.
        """
        if self._limit is None:
            return
        self._padded += math.prod(shape) * itemsize
        self._content += content
        if self._padded > max(self._limit, self._content):
            where = "" if longest is None else f", the length of {longest()}"
            raise MemoryBudgetError(
                f"cannot pad leaf {path!r} to the shape {tuple(shape)}{where}: the padded element would take "
                f"{self._padded} bytes, more than the memory limit of {self._limit} bytes. {self._cure} Or open the "
                "dataset with a larger memory_limit."
            )


def may_exceed(chunk: Columns, batch_size: int, limit: int) -> bool:
    """Return False if no batch of these rows exceeds the limit after padding of bytes and text. Fast."""
    lengths = (leaf.lengths for leaf in chunk.leaves if isinstance(leaf, VarColumn) and leaf.kind != "array")
    return sum(int(each.max(initial=0)) for each in lengths) * min(batch_size, len(chunk)) > limit


def check_padded_strings(parts: Sequence[Chunk], limit: int, describe: Callable[[int], str]) -> None:
    """Check that the leaves of bytes and text of one batch fit into the limit after padding.

    Args:
        parts: The rows of the batch, in chunks of one layout.
        describe: Function that returns the name of a row of the batch for the error message.

    Raises:
        MemoryBudgetError: A batch with ``strings="padded"`` would exceed the limit.
    """
    room = PaddedRoom(limit, OF_STRINGS)
    for path, leaves in _leaves(parts):
        found = [_lengths_of_strings(leaf) for leaf in leaves]
        some = [each for each in found if each is not None]
        if len(some) < len(found):
            continue
        lengths = np.concatenate(some)
        row = int(lengths.argmax())
        name = partial(describe, row)
        room.take(path, (len(lengths), int(lengths[row])), 1, int(lengths.sum()), name)


def _leaves(parts: Sequence[Chunk]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the path of each leaf, and its values in each part."""
    first = parts[0]
    structure = first.structure if isinstance(first, Columns) else structure_of(first.values[0])
    try:
        leaves = [part.leaves if isinstance(part, Columns) else structure.columns(part.values) for part in parts]
    except StructureError:
        return []  # stacking raises an error that describes the difference
    return list(zip(structure.paths(), zip(*leaves, strict=True), strict=True))


def _lengths_of_strings(leaf: Any) -> NDArray[np.int64] | None:
    """Return the length of each row in bytes, or None if the rows are not bytes or text."""
    if isinstance(leaf, VarColumn):
        return None if leaf.kind == "array" or not len(leaf) else leaf.lengths
    if isinstance(leaf, np.ndarray):
        if not leaf.dtype.hasobject or leaf.ndim != 1:
            return None
        leaf = leaf.tolist()
    if not leaf or not are_strings(set(map(type, leaf))):
        return None
    return np.fromiter(map(_utf8_nbytes, leaf), np.int64, len(leaf))


def _utf8_nbytes(value: bytes | str | None) -> int:
    if value is None:
        return 0
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="surrogatepass"))
