"""Exchange arrays by the Arrow C data interface with ctypes: the pure-Python version of ``arrow_c.pyx``.

Each exported structure has a number in ``private_data``. ``_KEPT`` holds the memory and the buffers of the structure
under this number until its release callback runs.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from aiostream_data._native.arrow_nodes import (
    ArrayNode,
    ArrowField,
    NodeCount,
    SchemaNode,
    check_buffers,
    check_capsule_owner,
    check_stream_idle,
    field_texts,
)
from aiostream_data._native.arrow_structs import (
    ARRAY_NAME,
    DESTRUCTOR,
    GET,
    GET_ERROR,
    NULLABLE,
    RELEASE,
    SCHEMA_NAME,
    STREAM_NAME,
    CArray,
    CSchema,
    CStream,
    address_of_function,
    new_capsule,
    pointer_of,
    pointer_of_dying,
)

S = TypeVar("S", CSchema, CArray)

_NUMBERS = itertools.count(1)
_KEPT: dict[int, list[Any]] = {}
_IN_CAPSULES: dict[int, ctypes.Structure] = {}


def export_schema(field: ArrowField) -> object:
    """Return a new ``arrow_schema`` capsule with the schema of ``field``.

    Raises:
        ValueError: A name contains a NUL character.
    """
    schema = CSchema()
    _or_released(schema, _fill_schema, field)
    return _capsule(schema, SCHEMA_NAME, _DROP_SCHEMA)


def export_array(field: ArrowField) -> object:
    """Return a new ``arrow_array`` capsule with the data of ``field``, which share the memory of its buffers.

    The consumer keeps the buffers alive until it releases the array. The destructor of the capsule releases an array
    that was not consumed.

    Raises:
        ValueError: A buffer is not contiguous.
    """
    array = CArray()
    _or_released(array, _fill_array, field)
    return _capsule(array, ARRAY_NAME, _DROP_ARRAY)


def export_stream(fields: Iterable[ArrowField], schema: ArrowField) -> object:
    """Return a new ``arrow_array_stream`` capsule with one array per field.

    Args:
        fields: The arrays of the stream. The iterator can run in any thread of the consumer.
        schema: A field with the schema of all arrays. Its buffers are ignored.
    """
    stream = CStream(get_schema=_GET_SCHEMA, get_next=_GET_NEXT, get_last_error=_GET_ERROR, release=_RELEASE_STREAM)
    stream.private_data = _keep([schema, iter(fields), None])
    return _capsule(stream, STREAM_NAME, _DROP_STREAM)


def import_schema(capsule: object) -> SchemaNode:
    """Consume an ``arrow_schema`` capsule and return a copy of the schema.

    Raises:
        ValueError: The object is not such a capsule, was consumed before, or contains an invalid schema.
    """
    schema = CSchema()
    _move(schema, CSchema.from_address(pointer_of(capsule, SCHEMA_NAME)), "schema")
    return _schema_and_release(schema)


def import_array(capsule: object) -> ImportedArray:
    """Consume an ``arrow_array`` capsule.

    Raises:
        ValueError: The object is not such a capsule, was consumed before, or contains an invalid array.
    """
    array = CArray()
    _move(array, CArray.from_address(pointer_of(capsule, ARRAY_NAME)), "array")
    return ImportedArray(array)


class ImportedArray:
    """Owner of an imported ``ArrowArray``, which it releases when the last reference to this object is dropped.

    Attributes:
        node: The contents of the array. The addresses are valid while this object exists.
    """

    __slots__ = ("_array", "node")

    def __init__(self, array: CArray) -> None:
        self._array = array
        self.node = _array_node(array, 0, NodeCount())

    def __del__(self) -> None:
        _release(self._array)


class ImportedStream:
    """Owner of an imported ``ArrowArrayStream``, which it releases when it is closed or dropped.

    Raises:
        ValueError: The object is not an ``arrow_array_stream`` capsule, or was consumed before.
    """

    __slots__ = ("_is_busy", "_stream")

    def __init__(self, capsule: object) -> None:
        self._is_busy = False
        self._stream = CStream()
        _move(self._stream, CStream.from_address(pointer_of(capsule, STREAM_NAME)), "stream")

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            _release(self._stream)

    def close(self) -> None:
        """Release the stream. Arrays that were read stay valid."""
        check_stream_idle(self._is_busy)
        _release(self._stream)

    def schema(self) -> SchemaNode:
        """Return the schema of all arrays of the stream.

        Raises:
            OSError: The producer failed.
            ValueError: The schema is invalid.
        """
        schema = CSchema()
        self._call("get_schema", schema)
        check_capsule_owner(not schema.release, "schema")
        return _schema_and_release(schema)

    def read(self) -> ImportedArray | None:
        """Return the next array, or None at the end of the stream.

        Raises:
            OSError: The producer failed.
            ValueError: The array is invalid.
        """
        array = CArray()
        self._call("get_next", array)
        return ImportedArray(array) if array.release else None

    def _call(self, method: str, target: CSchema | CArray) -> None:
        check_stream_idle(self._is_busy)
        check_capsule_owner(not self._stream.release, "stream")
        self._is_busy = True
        status = GET(getattr(self._stream, method))(ctypes.addressof(self._stream), ctypes.addressof(target))
        self._is_busy = False
        if status:
            target.release = None  # not valid after an error
            raise OSError(status, self._error())

    def _error(self) -> str:
        get = self._stream.get_last_error
        text = GET_ERROR(get)(ctypes.addressof(self._stream)) if get else None
        return ctypes.string_at(text).decode("utf-8", "replace") if text else "the producer failed without a message"


# -- writing structures ----------------------------------------------------------------------------------------------


def _or_released(struct: S, fill: Any, field: ArrowField) -> None:
    """Fill a structure. If this fails, release its parts."""
    try:
        fill(struct, field)
    except BaseException:
        _release(struct)
        raise


def _fill_schema(schema: CSchema, field: ArrowField) -> None:
    texts = [ctypes.create_string_buffer(text) for text in field_texts(field)]
    schema.format, schema.name = map(ctypes.addressof, texts)
    schema.flags = NULLABLE if field.nullable else 0
    kept: list[Any] = [texts]
    schema.private_data, schema.release = _keep(kept), _RELEASE_SCHEMA
    _fill_children(schema, field, _fill_schema, kept)


def _fill_array(array: CArray, field: ArrowField) -> None:
    check_buffers(field)
    array.length, array.null_count, array.n_buffers = field.length, field.null_count, len(field.buffers)
    addresses = [None if buffer is None else _address(buffer) for buffer in field.buffers]
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    array.buffers = ctypes.addressof(table)
    kept: list[Any] = [field.buffers, table]
    array.private_data, array.release = _keep(kept), _RELEASE_ARRAY
    _fill_children(array, field, _fill_array, kept)


def _fill_children(struct: S, field: ArrowField, fill: Any, kept: list[Any]) -> None:
    """Fill the children and the dictionary, and keep their memory in the entry of the parent."""
    kind = type(struct)
    parts = [kind() for _ in field.children]
    table = (ctypes.c_void_p * len(parts))(*map(ctypes.addressof, parts))
    kept += [parts, table]
    struct.children, struct.n_children = ctypes.addressof(table), len(parts)
    for part, child in zip(parts, field.children, strict=True):
        fill(part, child)
    if field.dictionary is not None:
        dictionary = kind()
        kept.append(dictionary)
        struct.dictionary = ctypes.addressof(dictionary)
        fill(dictionary, field.dictionary)


def _address(array: Any) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


def _keep(parts: list[Any]) -> int:
    number = next(_NUMBERS)
    _KEPT[number] = parts
    return number


def _capsule(struct: ctypes.Structure, name: bytes, destructor: int) -> object:
    _IN_CAPSULES[ctypes.addressof(struct)] = struct
    return new_capsule(struct, name, destructor)


# -- callbacks: the default arguments outlive the module while the interpreter ends ----------------------------------


def _release(struct: ctypes.Structure, release: Any = RELEASE) -> None:
    """Call the release callback of a structure, unless it was released or moved."""
    if callback := struct.release:
        release(callback)(ctypes.addressof(struct))
        struct.release = None


def _released_schema(address: int, kind: Any = CSchema) -> None:
    _drop_parts(kind.from_address(address))


def _released_array(address: int, kind: Any = CArray) -> None:
    _drop_parts(kind.from_address(address))


def _drop_parts(struct: Any, kept: Any = _KEPT, pointer: Any = ctypes.c_void_p, release: Any = _release) -> None:
    """Release the children and the dictionary unless the consumer took them, then drop the buffers."""
    kind = type(struct)
    children = (pointer * struct.n_children).from_address(struct.children) if struct.n_children else ()
    for child in (*children, struct.dictionary):
        if child:
            release(kind.from_address(child))
    kept.pop(struct.private_data, None)
    struct.release = None


def _released_stream(address: int, kind: Any = CStream, kept: Any = _KEPT) -> None:
    stream = kind.from_address(address)
    kept.pop(stream.private_data, None)
    stream.release = None


def _dropping(name: bytes) -> Any:
    """Return the destructor of capsules of this name, which releases what nobody consumed."""

    def drop(capsule: int, find: Any = pointer_of_dying, held: Any = _IN_CAPSULES, release: Any = _release) -> None:
        release(held.pop(find(capsule, name)))

    return DESTRUCTOR(drop)


def _get_schema(address: int, target: int) -> int:
    kept = _KEPT[CStream.from_address(address).private_data]
    return _answered(kept, CSchema.from_address(target), _fill_schema, lambda: kept[0])


def _get_next(address: int, target: int) -> int:
    kept = _KEPT[CStream.from_address(address).private_data]
    return _answered(kept, CArray.from_address(target), _fill_array, lambda: next(kept[1], None))


def _answered(kept: list[Any], target: CSchema | CArray, fill: Any, field_of: Any) -> int:
    """Fill a structure of the consumer. Return an error number, or 0."""
    ctypes.memset(ctypes.addressof(target), 0, ctypes.sizeof(target))
    try:
        if (field := field_of()) is not None:  # otherwise, an array without release callback marks the end
            _or_released(target, fill, field)  # type: ignore[type-var]
    except BaseException as error:  # noqa: BLE001 - a callback cannot raise
        kept[2] = ctypes.create_string_buffer(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        is_value = isinstance(error, ValueError)
        return errno.ENOMEM if isinstance(error, MemoryError) else errno.EINVAL if is_value else errno.EIO
    return 0


def _get_error(address: int) -> int | None:
    text = _KEPT[CStream.from_address(address).private_data][2]
    return None if text is None else ctypes.addressof(text)


_RELEASE_SCHEMA = address_of_function(RELEASE(_released_schema))
_RELEASE_ARRAY = address_of_function(RELEASE(_released_array))
_RELEASE_STREAM = address_of_function(RELEASE(_released_stream))
_GET_SCHEMA = address_of_function(GET(_get_schema))
_GET_NEXT = address_of_function(GET(_get_next))
_GET_ERROR = address_of_function(GET_ERROR(_get_error))
_DROP_SCHEMA = address_of_function(_dropping(SCHEMA_NAME))
_DROP_ARRAY = address_of_function(_dropping(ARRAY_NAME))
_DROP_STREAM = address_of_function(_dropping(STREAM_NAME))


# -- reading structures ----------------------------------------------------------------------------------------------


def _move(target: ctypes.Structure, source: ctypes.Structure, what: str) -> None:
    """Take ownership of a structure of a producer."""
    check_capsule_owner(not source.release, what)
    ctypes.memmove(ctypes.addressof(target), ctypes.addressof(source), ctypes.sizeof(source))
    source.release = None


def _schema_and_release(schema: CSchema) -> SchemaNode:
    try:
        return _schema_node(schema, 0, NodeCount())
    finally:
        _release(schema)


def _schema_node(schema: CSchema, depth: int, count: NodeCount) -> SchemaNode:
    count.add(depth, schema.n_children)
    if not schema.format:
        raise ValueError("a field has no format")
    children = tuple(_schema_node(child, depth + 1, count) for child in _children(schema, "a field"))
    dictionary = None
    if schema.dictionary:
        dictionary = _schema_node(CSchema.from_address(schema.dictionary), depth + 1, count)
    name = _text(schema.name) if schema.name else ""
    return SchemaNode(_text(schema.format), name, bool(schema.flags & NULLABLE), children, dictionary)


def _text(address: int) -> str:
    return ctypes.string_at(address).decode("utf-8", "backslashreplace")


def _array_node(array: CArray, depth: int, count: NodeCount) -> ArrayNode:
    count.add(depth, array.n_children, array.n_buffers)
    if array.n_buffers and not array.buffers:
        raise ValueError(f"the list of {array.n_buffers} buffers is missing")
    table = (ctypes.c_void_p * array.n_buffers).from_address(array.buffers) if array.n_buffers else ()
    buffers = tuple(address or 0 for address in table)
    children = tuple(_array_node(child, depth + 1, count) for child in _children(array, "an array"))
    dictionary = None
    if array.dictionary:
        dictionary = _array_node(CArray.from_address(array.dictionary), depth + 1, count)
    return ArrayNode(array.length, array.null_count, array.offset, buffers, children, dictionary)


def _children(struct: S, what: str) -> Iterable[S]:
    for i in range(struct.n_children):
        address = ctypes.c_void_p.from_address(struct.children + 8 * i).value if struct.children else None
        if not address:
            raise ValueError(f"child {i} of {struct.n_children} of {what} is missing")
        yield type(struct).from_address(address)
