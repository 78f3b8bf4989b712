"""Change single fields of the footer or of a page header of a Parquet file, so that all other fields fit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import thrift_compact as thrift

__all__ = ["with_changed_metadata", "with_field", "with_page_field"]

_MAGIC = b"PAR1"
_END_NBYTES = 8
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
"""Numbers of the fields that lead from the footer to the metadata of a column."""

_COMPRESSED_NBYTES, _OFFSETS = 7, (9, 10, 11)
_PAGE_NBYTES = 3
NUMBERS = (0, 1, -1, 2, 3, 5, 127, 255, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))


class _Place(NamedTuple):
    """A value in a struct or a list: ``owner[at]``."""

    owner: Any
    at: int


def with_changed_metadata(file: bytes, source: random.Random) -> bytes:
    """Return a file with one other field. Return other bytes unchanged."""
    start = len(file) - _END_NBYTES - int.from_bytes(file[-_END_NBYTES:-4], "little")
    if file[-4:] != _MAGIC or start < 0:
        return file
    try:
        footer, _ = thrift.parsed(file[:-_END_NBYTES], start)
        content = file[:start]
        if source.random() < 0.5:
            _change(footer, source)
        else:
            content = _with_changed_page(content, footer, source)
        ended = thrift.written(footer)
    except (thrift.ThriftError, LookupError, TypeError, ValueError, AttributeError):
        return file
    return content + ended + len(ended).to_bytes(4, "little") + _MAGIC


def _change(fields: Any, source: random.Random) -> None:
    """Change one value of a struct."""
    places = list(_places(fields))
    if not places:
        return
    owner, at = source.choice(places)
    if isinstance(owner, thrift.List):
        owner.items[at] = _changed(owner.kind, owner.items[at], source)
        return
    number, kind, value = owner[at]
    chance = source.random()
    if chance < 0.07:
        del owner[at]
    elif chance < 0.1:
        owner[at] = (number + source.choice((1, -1)), kind, value)
    else:
        owner[at] = (number, kind, _changed(kind, value, source))


def _changed(kind: int, value: Any, source: random.Random) -> Any:
    if isinstance(value, thrift.List):
        chance = source.random()
        if chance < 0.4 and value.items:
            value.items.pop(source.randrange(len(value.items)))
        elif chance < 0.8 and value.items:
            value.items.insert(source.randrange(len(value.items)), source.choice(value.items))
        else:
            source.shuffle(value.items)
        return value
    if isinstance(value, bytes):
        at = source.randrange(len(value) + 1)
        return value[:at] + source.choice((b"", b"\0", b"\xff", b"a", bytes(9))) + value[at + 1 :]
    if isinstance(value, int):
        return value + source.choice((1, -1, 8)) if source.random() < 0.4 else source.choice(NUMBERS)
    return value


def _places(owner: Any) -> Iterator[_Place]:
    """Yield the places of all values in a struct or a list."""
    values = owner.items if isinstance(owner, thrift.List) else [value for _, _, value in owner]
    for at, value in enumerate(values):
        yield _Place(owner, at)
        if isinstance(value, (list, thrift.List)):
            yield from _places(value)


def _with_changed_page(content: bytes, footer: Any, source: random.Random) -> bytes:
    """Change the header of one page, and move all columns behind it."""
    column = source.choice(list(_columns(footer)))
    start = _start(column)
    stop, places = start + _field(column, _COMPRESSED_NBYTES), []
    while start < stop:
        header, behind = thrift.parsed(content, start)
        places.append((start, behind))
        start = behind + max(0, _field(header, _PAGE_NBYTES))
    place = source.choice(places)
    header, _ = thrift.parsed(content, place[0])
    _change(header, source)
    return _with_header(content, footer, column, place, thrift.written(header))


def _with_header(content: bytes, footer: Any, column: Any, place: tuple[int, int], header: bytes) -> bytes:
    """Replace the header at a place, and change the offsets in the footer."""
    start, behind = place
    moved = len(header) - (behind - start)
    _add(column, _COMPRESSED_NBYTES, moved)
    for each in _columns(footer):
        for number in _OFFSETS:
            if _has(each, number) and _field(each, number) > start:
                _add(each, number, moved)
    return content[:start] + header + content[behind:]


def _start(column: Any) -> int:
    return int(min(_field(column, number) for number in _OFFSETS if _has(column, number)))


def _columns(footer: Any) -> Iterator[Any]:
    for group in _field(footer, _ROW_GROUPS).items:
        for column in _field(group, _COLUMNS).items:
            yield _field(column, _METADATA)


def _has(fields: Any, number: int) -> bool:
    return any(each == number for each, _, _ in fields)


def _field(fields: Any, number: int) -> Any:
    return {each: value for each, _, value in fields}[number]


def _add(fields: Any, number: int, more: int) -> None:
    fields[:] = [(each, kind, value + more if each == number else value) for each, kind, value in fields]


def with_field(file: bytes, column: int, path: Sequence[int], value: Any) -> bytes:
    """Return a file with another value in the metadata of a column of the first row group.

    Args:
        path: Numbers of the field, and of the structs around it, in the metadata of the column.
    """
    start = len(file) - _END_NBYTES - int.from_bytes(file[-_END_NBYTES:-4], "little")
    footer, _ = thrift.parsed(file[:-_END_NBYTES], start)
    fields = list(_columns(footer))[column]
    for number in path[:-1]:
        fields = _field(fields, number)
    fields[:] = [(each, kind, value if each == path[-1] else old) for each, kind, old in fields]
    ended = thrift.written(footer)
    return file[:start] + ended + len(ended).to_bytes(4, "little") + _MAGIC


def with_page_field(file: bytes, column: int, path: Sequence[int], value: int) -> bytes:
    """Return a file with another value in the header of the first page of a column of the first row group."""
    start = len(file) - _END_NBYTES - int.from_bytes(file[-_END_NBYTES:-4], "little")
    footer, _ = thrift.parsed(file[:-_END_NBYTES], start)
    place = _start(list(_columns(footer))[column])
    header, behind = thrift.parsed(file, place)
    fields = header
    for number in path[:-1]:
        fields = _field(fields, number)
    fields[:] = [(each, kind, value if each == path[-1] else old) for each, kind, old in fields]
    content = _with_header(
        file[:start], footer, list(_columns(footer))[column], (place, behind), thrift.written(header)
    )
    ended = thrift.written(footer)
    return content + ended + len(ended).to_bytes(4, "little") + _MAGIC
