"""Descriptions of Arrow fields and arrays, shared by the native Arrow exchange and its pure-Python twin.

:class:`ArrowField` describes data to export. Imports return a :class:`SchemaNode` and :class:`ArrayNode` objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

MAX_DEPTH: Final = 31
"""Maximum number of nested levels in an imported schema or array. All NumPy versions support one axis more."""

MAX_NODES: Final = 1 << 20
"""Maximum number of fields or buffers in an imported schema or array. The limit detects damaged structures."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrowField:
    """A field of an Arrow schema, together with its data.

    Attributes:
        name: Name of the field.
        format: Format string of the Arrow C data interface, such as ``i`` for int32.
        length: Number of rows.
        buffers: The buffers in the order of the Arrow format: contiguous arrays of any dtype, or None if absent.
        children: Child fields.
        null_count: Number of missing rows.
        nullable: Whether the schema allows missing rows.
        dictionary: Values of a dictionary-encoded field.
    """

    name: str
    format: str
    length: int
    buffers: tuple[NDArray[Any] | None, ...]
    children: tuple[ArrowField, ...] = ()
    null_count: int = 0
    nullable: bool = True
    dictionary: ArrowField | None = None


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A copy of an imported ``ArrowSchema``, without its metadata."""

    format: str
    name: str
    nullable: bool
    children: tuple[SchemaNode, ...] = ()
    dictionary: SchemaNode | None = None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """The contents of an imported ``ArrowArray``. ``buffers`` are addresses; 0 means that the buffer is absent."""

    length: int
    null_count: int
    offset: int
    buffers: tuple[int, ...]
    children: tuple[ArrayNode, ...] = ()
    dictionary: ArrayNode | None = None


class NodeCount:
    """Counter of the fields and buffers of one imported structure."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_NODES

    def add(self, depth: int, children: int, buffers: int = 0) -> None:
        """Count a field with its children and buffers.

        Raises:
            ValueError: A number is negative, or the structure is too deep or too large.
        """
        if children < 0 or buffers < 0:
            raise ValueError(f"a field has {children} children and {buffers} buffers")
        if depth > MAX_DEPTH:
            raise ValueError(f"the fields are nested more than {MAX_DEPTH} levels deep")
        self._left -= 1 + children + buffers
        if self._left < 0:
            raise ValueError(f"the structure has more than {MAX_NODES} fields and buffers")


def field_texts(field: ArrowField) -> tuple[bytes, bytes]:
    """Return the format and the name of a field as UTF-8.

    Raises:
        ValueError: A text contains a NUL character or an unpaired surrogate.
    """
    texts = field.format.encode(), field.name.encode()  # UnicodeEncodeError is a ValueError
    if any(b"\0" in text for text in texts):
        raise ValueError(f"the name {field.name!r} contains a NUL character")
    return texts


def check_buffers(field: ArrowField) -> None:
    """Raise ``ValueError`` unless all buffers of a field are contiguous."""
    for buffer in field.buffers:
        if buffer is not None and not buffer.flags.c_contiguous:
            raise ValueError(f"a buffer of the field {field.name!r} is not contiguous")


def check_capsule_owner(released: bool, what: str) -> None:
    """Raise ``ValueError`` if a capsule was already consumed."""
    if released:
        raise ValueError(f"the {what} was already consumed or released. Request a new capsule from the producer")


def check_stream_idle(busy: bool) -> None:
    """Raise ``ValueError`` if another thread is reading from a stream."""
    if busy:
        raise ValueError("another thread is reading from the stream. Read a stream from one thread at a time")
