"""Elements of all libraries: their number of rows, and a checksum of their values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np


def rows_of(element: Any) -> int:
    """Return the number of rows of an element: a batch or a single row."""
    first = element
    while isinstance(first, dict | tuple):
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    if type(first).__name__ == "RaggedTensor":
        return int(first.nrows())
    shape: Any = getattr(first, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return len(first) if hasattr(first, "__len__") and not isinstance(first, str | bytes) else 1


def checksum(element: Any, before: int = 0) -> int:
    """Return a checksum of the values of an element, which does not depend on dtypes and names."""
    for array in _arrays(element):
        before = zlib.crc32(array.astype(np.float64).tobytes(), before)
    return before


def _arrays(element: Any) -> Iterator[Any]:
    if isinstance(element, dict):
        for key in sorted(element):
            yield from _arrays(element[key])
    elif isinstance(element, tuple):
        for leaf in element:
            yield from _arrays(leaf)
    elif type(element).__name__ == "RaggedTensor":
        yield from (element.row_splits.numpy(), element.flat_values.numpy())
    elif type(element).__name__ == "RaggedArray":
        yield from (element.row_splits, element.values)
    elif type(element).__name__ == "SparseTensor":
        yield from (element.indices.numpy()[:, -1], element.values.numpy())
    elif type(element).__name__ == "csr_array":
        yield from (element.indices, element.data)
    else:
        yield _numbers(np.asarray(element.numpy() if hasattr(element, "numpy") else element))


def _numbers(array: Any) -> Any:
    if array.dtype.kind not in "OSUT":
        return array.ravel()
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.ravel().tolist()]
    return np.frombuffer(b"".join(texts), np.uint8)
