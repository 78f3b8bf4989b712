"""Decode JSON records to Python values, and describe records that are not JSON.

The values are those of ``json.loads``, but only strict JSON is accepted: no NaN, no infinite numbers, and no halves of
surrogate pairs. The package msgspec decodes faster than the standard library, and gives the same values.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.json_rows_py import MOST_DEPTH, all_pairs, depth_of, refuse_constant, strict_float
from aiostream_data.errors import JsonParseError
from aiostream_data.formats.placed_records import PlacedColumn
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Columns, Items
from aiostream_data.safe_url import shorten

Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""The function ``describe(row)`` returns the URL and the record number for a row."""

_MEASURED_ROWS: Final = 16
_SHOWN_CHARACTERS: Final = 60
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING_OR_CONSTANT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN', re.DOTALL)
_SKIP: Final = "skip such records with on_error='skip'"
_AS_TEXT: Final = f"write it as text in quotes, or {_SKIP}"
_OPEN_ENDS: Final = (b"{", b"[", b",")
"""Last bytes of a first line that shows that a value continues in the next line."""

_TOO_DEEP: Final = f"the record nests more than {MOST_DEPTH} lists and objects"
_strict = json.JSONDecoder(parse_float=strict_float, parse_constant=refuse_constant)


class Problem(NamedTuple):
    """Description of what is wrong with a record.

    Attributes:
        place: Offset in the record in bytes.
        reason: Description with the bytes at this offset, and what to do.
    """

    place: int
    reason: str


@dataclass(frozen=True)
class JsonValues:
    """Row-wise decoder that converts each record to the value that ``json.loads`` returns. Thread-safe."""

    wraps: ClassVar[bool] = False

    def parse(self, chunk: Columns, describe: Describe) -> Items:
        """Convert all records of a chunk.

        Raises:
            JsonParseError: A record is not strict JSON. The error names the first such record.
        """
        (records,) = chunk.leaves
        assert isinstance(records, VarColumn)
        values = None if _may_be_too_deep(records) else _values_of_block(records)
        if values is None:
            values = self._one_by_one(records, describe)
        return Items(values, chunk.ids, None, chunk.made_of, None, _sizes_of(values, records.lengths))

    def _one_by_one(self, records: VarColumn, describe: Describe) -> list[Any]:
        load, values = loader(), []
        for row, record in enumerate(records.elements()):
            try:
                if depth_of(record) <= MOST_DEPTH:
                    values.append(load(record))
                    continue
            except (ValueError, OverflowError, RecursionError):  # described below, without this context
                pass
            problem = problem_of(record) or Problem(0, f"msgspec refuses the record {quoted(record)}")
            raise parse_error(records, row, describe, "", problem)
        return values


def _sizes_of(values: list[Any], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Estimate the sizes of values in bytes from the lengths of their records, and from the sizes of a few values."""
    step = -(-len(values) // _MEASURED_ROWS) or 1
    measured = sum(map(object_nbytes, values[::step]))
    sizes: NDArray[np.int64] = np.ceil(lengths * (measured / max(1, int(lengths[::step].sum())))).astype(np.int64)
    return sizes


def parse_error(records: VarColumn, row: int, describe: Describe, field: str, problem: Problem) -> JsonParseError:
    """Return the error for a record of a column."""
    url, record = describe(row)
    line, offset = records.place_of(row) if isinstance(records, PlacedColumn) else (None, None)
    return JsonParseError(url, record, line, None if offset is None else offset + problem.place, field, problem.reason)


@cache
def loader() -> Callable[[bytes], Any]:
    """Return the function that decodes one record. Its errors are ValueError, OverflowError or RecursionError."""
    try:
        import msgspec  # optional
    except ImportError:
        return load
    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return decode


@cache
def lines_loader() -> Callable[[Any], list[Any]] | None:
    """Return the function that decodes many records; None without msgspec."""
    try:
        import msgspec  # optional
    except ImportError:
        return None
    decode: Callable[[Any], list[Any]] = msgspec.json.Decoder().decode_lines
    return decode


def load(record: bytes) -> Any:
    """Decode one record of strict JSON with the standard library.

    Raises:
        ValueError, OverflowError, RecursionError: The record is not strict JSON.
    """
    value = _strict.decode(str(record, "utf-8"))
    if _SURROGATE.search(record):
        all_pairs(record)  # fails for half of a surrogate pair, also in a value that a later one replaces
    return value


def _values_of_block(records: VarColumn) -> list[Any] | None:
    """Decode all records with one call; None if this is impossible or a record is damaged.

    The decoder ignores line ends, so a value could reach into the next line, and a line could contain two values.
    Neither can remain undetected if each record begins with an opening bracket, ends with a closing one, and there are
    as many values as records: no value continues with an opening bracket behind a closing one.
    """
    decode = lines_loader()
    if decode is None or not len(records):
        return None
    values, starts, stops = np.ascontiguousarray(records.values), records.starts, records.starts + records.lengths
    gaps = starts[1:] - stops[:-1]
    if not records.lengths.all() or (gaps < 0).any() or (gaps > len(b"\r\n")).any():
        return None
    if not (_bit_5_set(values[starts]) == ord("{")).all() or not (_bit_5_set(values[stops - 1]) == ord("}")).all():
        return None
    try:
        with _collector_paused():
            found = decode(values[starts[0] : stops[-1]].data)
    except (ValueError, RecursionError):  # the caller decodes the records one by one
        return None
    return found if len(found) == len(records) else None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which otherwise visits all values again for each 700 new lists and objects.

    Decoding nested records then takes three times as long. The decoder keeps the GIL, so no other code runs meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _bit_5_set(values: Any) -> Any:
    """Return the bytes with the same value for brackets and braces."""
    return values | 0x20


def _may_be_too_deep(records: VarColumn) -> bool:
    """Return True if a record has so many brackets that they can be nested too deeply."""
    rows = np.flatnonzero(records.lengths > 2 * MOST_DEPTH)
    if not len(rows):
        return False
    starts = records.starts[rows]
    stops = starts + records.lengths[rows]
    first, last = int(starts.min()), int(stops.max())
    opening = np.flatnonzero(_bit_5_set(records.values[first:last]) == ord("{"))
    if len(opening) <= MOST_DEPTH:
        return False
    counts = np.searchsorted(opening, stops - first) - np.searchsorted(opening, starts - first)
    suspicious = rows[counts > MOST_DEPTH]
    return any(depth_of(records.element(row)) > MOST_DEPTH for row in suspicious.tolist())


def problem_of(record: bytes) -> Problem | None:
    """Return what is wrong with a record; None for strict JSON."""
    if depth_of(record) > MOST_DEPTH:
        return Problem(0, f"{_TOO_DEEP}: {quoted(record)}; {_SKIP}")
    try:
        load(record)
    except json.JSONDecodeError as error:
        place = len(error.doc[: error.pos].encode())
        return Problem(place, f"{_lower(error.msg).removesuffix(' at')}{_at(record, place)}; {_cure(record, place)}")
    except UnicodeEncodeError:
        found = _SURROGATE.search(record)
        place = found.start() if found else 0
        return Problem(place, f"half of a surrogate pair{_at(record, place)}; such a text cannot be UTF-8")
    except UnicodeDecodeError as error:
        return Problem(error.start, f"not valid utf-8: {error.reason}")
    except (ValueError, OverflowError) as error:
        return _number_problem(record, error)
    except RecursionError:
        return Problem(0, f"{_TOO_DEEP}: {quoted(record)}; {_SKIP}")
    return None


def _number_problem(record: bytes, error: Exception) -> Problem:
    """Describe a number that is not JSON, or that is too large."""
    for found in _STRING_OR_CONSTANT.finditer(record):
        if not found.group().startswith(b'"'):
            name = found.group().decode()
            return Problem(found.start(), f"{name} is not JSON; write null for a number without a value")
    if isinstance(error, OverflowError):
        return Problem(0, f"{shorten(str(error)[: 4 * _SHOWN_CHARACTERS])}; {_AS_TEXT}")
    return Problem(0, f"an integer has more than {sys.get_int_max_str_digits()} digits; {_AS_TEXT}")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _at(record: bytes, place: int) -> str:
    if place >= len(record):
        return ": the record ends too early"
    return f" at {quoted(record[place:])}"


def _cure(record: bytes, place: int) -> str:
    """Return what to do about a record that is not JSON."""
    if place >= len(record) and record.rstrip()[-1:] in _OPEN_ENDS:
        return "a JSON document has several lines, so write one value per line, or use from_files() and json.loads"
    return f"write one JSON value per line, or {_SKIP}"


def quoted(text: bytes) -> str:
    """Return the start of a text in quotes, without secrets."""
    found = shorten(text[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace"))
    return repr(found if len(found) <= _SHOWN_CHARACTERS else found[: _SHOWN_CHARACTERS - 3] + "...")
