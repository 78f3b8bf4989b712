"""Arrow producers made with ctypes, which count how often a consumer releases what they hand out.

Tests change fields of the structures before a consumer reads them, to see what it does with damaged ones.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aiostream_data import _native
from aiostream_data._native import arrow_c_py, row_bytes_py
from aiostream_data._native.arrow_structs import (
    ARRAY_NAME,
    GET,
    GET_ERROR,
    RELEASE,
    SCHEMA_NAME,
    STREAM_NAME,
    CArray,
    CSchema,
    CStream,
    new_capsule,
)

KERNELS = (
    "ImportedArray",
    "ImportedStream",
    "export_array",
    "export_schema",
    "export_stream",
    "import_array",
    "import_schema",
)


def use_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package exchange arrays by its kernels in pure Python."""
    for name in KERNELS:
        monkeypatch.setattr(_native, name, getattr(arrow_c_py, name))
    monkeypatch.setattr(_native, "first_invalid_utf8", row_bytes_py.first_invalid_utf8)


class Made:
    """One array and its schema, in memory of this object.

    Attributes:
        schema, array: The structures, to be damaged.
        schema_releases, array_releases: How often a consumer called each callback.
    """

    schema: CSchema
    array: CArray

    def __init__(
        self,
        form: str,
        length: int,
        buffers: Sequence[Any] = (),
        children: Sequence[Made] = (),
        dictionary: Made | None = None,
        *,
        name: str = "",
        null_count: int = 0,
        offset: int = 0,
    ) -> None:
        self.schema_releases = self.array_releases = 0
        self.children, self.inner = list(children), dictionary
        self._kept = [None if one is None else np.ascontiguousarray(one) for one in buffers]
        self._form, self._name = ctypes.create_string_buffer(form.encode()), ctypes.create_string_buffer(name.encode())
        self._table = (ctypes.c_void_p * len(buffers))(
            *(None if one is None else one.ctypes.data for one in self._kept)
        )
        self._schemas = (ctypes.c_void_p * len(children))(*(ctypes.addressof(child.schema) for child in children))
        self._arrays = (ctypes.c_void_p * len(children))(*(ctypes.addressof(child.array) for child in children))
        self._release_schema, self._release_array = RELEASE(self._schema_released), RELEASE(self._array_released)
        self.schema = CSchema(
            format=ctypes.addressof(self._form),
            name=ctypes.addressof(self._name),
            flags=2,
            n_children=len(children),
            children=ctypes.addressof(self._schemas),
            dictionary=None if dictionary is None else ctypes.addressof(dictionary.schema),
            release=ctypes.cast(self._release_schema, ctypes.c_void_p).value,
        )
        self.array = CArray(
            length=length,
            null_count=null_count,
            offset=offset,
            n_buffers=len(buffers),
            n_children=len(children),
            buffers=ctypes.addressof(self._table),
            children=ctypes.addressof(self._arrays),
            dictionary=None if dictionary is None else ctypes.addressof(dictionary.array),
            release=ctypes.cast(self._release_array, ctypes.c_void_p).value,
        )

    def _schema_released(self, address: int) -> None:
        CSchema.from_address(address).release = None
        self.schema_releases += 1

    def _array_released(self, address: int) -> None:
        CArray.from_address(address).release = None
        self.array_releases += 1

    @property
    def buffer_addresses(self) -> list[int]:
        return [address or 0 for address in self._table]

    def address(self, index: int, value: int | None) -> None:
        """Replace the address of a buffer."""
        self._table[index] = value

    def child_address(self, index: int, value: int | None) -> None:
        """Replace the address of a child, in the schema and in the array."""
        self._schemas[index] = self._arrays[index] = value

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return new_capsule(self.schema, SCHEMA_NAME, 0), new_capsule(self.array, ARRAY_NAME, 0)


class MadeStream:
    """A stream of made arrays, which share the schema of the first one.

    Attributes:
        releases: How often a consumer released the stream.
    """

    def __init__(self, arrays: Sequence[Made], failure: str | None = "", schema_status: int = 0) -> None:
        self.releases = 0
        self.arrays = list(arrays)
        self._left = list(arrays)
        self._schema_status = schema_status
        self._failure = None if failure is None else ctypes.create_string_buffer(failure.encode())
        self._fails = failure != ""
        self._calls = (GET(self._schema), GET(self._next), GET_ERROR(self._error), RELEASE(self._released))
        names = ("get_schema", "get_next", "get_last_error", "release")
        addresses = (ctypes.cast(call, ctypes.c_void_p).value for call in self._calls)
        self.stream = CStream(**dict(zip(names, addresses, strict=True)))

    def _schema(self, stream: int, target: int) -> int:
        ctypes.memmove(target, ctypes.addressof(self.arrays[0].schema), ctypes.sizeof(CSchema))
        return self._schema_status

    def _next(self, stream: int, target: int) -> int:
        if not self._left and self._fails:
            return errno.EIO
        source = self._left.pop(0).array if self._left else CArray()
        ctypes.memmove(target, ctypes.addressof(source), ctypes.sizeof(CArray))
        return 0

    def _error(self, stream: int) -> int | None:
        return None if self._failure is None else ctypes.addressof(self._failure)

    def _released(self, address: int) -> None:
        CStream.from_address(address).release = None
        self.releases += 1

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return new_capsule(self.stream, STREAM_NAME, 0)


def bits(*rows: int) -> Any:
    """A validity bitmap."""
    return np.packbits(np.array(rows, np.uint8), bitorder="little")


def numbers(*values: int) -> Any:
    return np.array(values, np.int32)


def text_of(*rows: bytes, form: str = "u", dtype: Any = np.int32) -> Made:
    """An array of text with offsets."""
    offsets = np.cumsum([0, *map(len, rows)]).astype(dtype)
    return Made(form, len(rows), [None, offsets, np.frombuffer(b"".join(rows) or b"\0", np.uint8)])
