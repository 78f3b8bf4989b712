"""Infer the schema of JSON lines files from the first records of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from aiostream_data.arguments import shown
from aiostream_data.errors import CorruptRecordError, JsonParseError, PlanError
from aiostream_data.formats.features import VarLen
from aiostream_data.formats.first_records import MOST_RECORDS, FirstRecords
from aiostream_data.formats.json_columns import JsonParser
from aiostream_data.formats.json_schema import MOST_LEVELS, JsonField, JsonFields
from aiostream_data.formats.json_values import Describe, Problem, load, problem_of, quoted
from aiostream_data.rows.records import Columns

INFERRED_RECORDS: Final = MOST_RECORDS
"""Maximum number of records that determine the types of the keys."""

_INTEGER_TYPES: Final = tuple(np.dtype(kind) for kind in (np.int64, np.uint64))
_CURE: Final = "declare the keys that you need, as in schema={'id': np.int64, 'text': str}"


@dataclass(frozen=True)
class JsonParserToInfer:
    """Parser of JSON records whose schema is inferred when the dataset is opened."""

    wraps: ClassVar[bool] = False

    def with_records(self, first: FirstRecords) -> JsonParser:
        """Return the parser for the first records of a file.

        Raises:
            JsonParseError, CorruptRecordError: See :meth:`JsonInference.fields`.
        """
        return JsonParser(JsonInference(first.url, first.records, first).fields(), first.url)

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        raise PlanError(
            "from_jsonl() infers a schema only when its dataset is opened by itself, but a function returned this "
            f"dataset. Instead of schema='infer', {_CURE}."
        )


class JsonInference:
    """Keys and types of the first records of a file.

    Args:
        url: URL of the file, for error messages.
        records: First records of the file.
        places: Places of the records in the file, and its first damage; None if unknown.
    """

    def __init__(self, url: str, records: Sequence[bytes], places: FirstRecords | None = None) -> None:
        self._url = url
        self._records = records[:INFERRED_RECORDS]
        self._places = places

    def fields(self) -> JsonFields:
        """Return the schema, with the keys of all records in the order of their first occurrence.

        The type of a value is the first of bool, int64, uint64, float64 and str that all values have; a key whose
        values are null is str. Integers without floats are never float64, which would round them. A list is a
        :class:`.VarLen`, of float64 if it is always empty. Objects become nested schemas, and objects that are always
        empty are left out.

        Records that are not JSON or no objects are left to the reader, which reports or skips them.

        Raises:
            JsonParseError: There is no object, or the values of a key have no common type.
            CorruptRecordError: There is no object, and the first line of the file is damaged.
        """
        values = [load(record) for record in self._records if problem_of(record) is None]
        objects = [value for value in values if isinstance(value, dict)]
        if not objects:
            raise self._no_object()
        found = self._fields(objects, "", 1)
        return found if found else self._fail("", "all objects are empty, so the keys are unknown")

    def _no_object(self) -> JsonParseError | CorruptRecordError:
        """Return the error that a reader of the first record would raise, with the consequence for the schema."""
        result = "the start of the file contains no JSON object, so the keys are unknown"
        line, offset = (None, None) if self._places is None else self._places.place_of(0)
        damage = None if self._places is None else self._places.damage
        if damage is not None and (offset is None or damage.offset < offset):
            return damage
        if not self._records:
            return JsonParseError(self._url, 0, None, None, "", f"{result}; check the format of the files")
        problem = problem_of(self._records[0])
        cure = "pass schema=None for other values" if problem is None else "check the format of the files"
        place, reason = problem or Problem(0, f"expected an object, found {quoted(self._records[0])}")
        at = None if offset is None else offset + place
        return JsonParseError(self._url, 0, line, at, "", f"{reason}; {result}; {cure}")

    def _fields(self, objects: Sequence[dict[str, Any]], prefix: str, level: int) -> JsonFields:
        if level > MOST_LEVELS:
            self._fail(prefix[:-1], f"the objects have more than {MOST_LEVELS} levels")
        found = []
        for name in dict.fromkeys(key for each in objects for key in each):
            values = [each[name] for each in objects if each.get(name) is not None]
            kind = self._type(values, prefix + name, level)
            if kind != ():
                found.append(JsonField(name, kind))
        return tuple(found)

    def _type(self, values: Sequence[Any], path: str, level: int) -> Any:
        kinds = set(map(type, values))
        if kinds == {dict}:
            return self._fields(values, f"{path}.", level + 1)
        if kinds == {list}:
            items = [item for each in values for item in each]
            return VarLen(self._scalar(items, path) if items else np.float64)
        return self._scalar(values, path) if values else str

    def _scalar(self, values: Sequence[Any], path: str) -> Any:
        kinds = set(map(type, values))
        if kinds == {str}:
            return str
        if kinds == {bool}:
            return np.dtype(np.bool_)
        if kinds == {int}:
            return self._integer(values, path)
        if kinds <= {int, float}:
            return np.dtype(np.float64)
        first = next((value for value in values if type(value) is not type(values[0])), values[0])
        shown_values = f"{shown(values[0])} and {shown(first)}"
        return self._fail(path, f"the values {shown_values} have no type that a schema can contain")

    def _integer(self, values: Sequence[int], path: str) -> np.dtype[Any]:
        least, most = min(values), max(values)
        for dtype in _INTEGER_TYPES:
            if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
                return dtype
        found = f"integers from {shown(least)} to {shown(most)} fit neither int64 nor uint64"
        cure = "declare the key as np.float64, which rounds them, or pass schema=None, which keeps them"
        return self._fail(path, found, cure)

    def _fail(self, path: str, reason: str, cure: str = _CURE) -> NoReturn:
        raise JsonParseError(self._url, 0, None, None, path, f"{reason}; {cure}")


def has_keys(first: FirstRecords) -> bool:
    """Return True if one of the records is an object with a key, from which a schema can be inferred."""
    return any(problem_of(record) is None and _has_key(load(record)) for record in first.records)


def _has_key(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)
