"""Infer the schema of JSON lines files from the first records of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from aiostream_data.arguments import shown
from aiostream_data.errors import JsonParseError, PlanError
from aiostream_data.formats.features import VarLen
from aiostream_data.formats.json_columns import JsonParser
from aiostream_data.formats.json_schema import MOST_LEVELS, JsonField, JsonFields
from aiostream_data.formats.json_values import Describe, load, problem_of
from aiostream_data.rows.records import Columns

INFERRED_RECORDS: Final = 1000
"""Maximum number of records that determine the types of the keys."""

_INT64: Final = np.iinfo(np.int64)
_CURE: Final = "declare the keys that you need, as in schema={'id': np.int64, 'text': str}"


@dataclass(frozen=True)
class JsonParserToInfer:
    """Parser of JSON records whose schema is inferred when the dataset is opened."""

    wraps: ClassVar[bool] = False

    def with_records(self, url: str, records: Sequence[bytes]) -> JsonParser:
        """Return the parser for the first records of a file.

        Raises:
            JsonParseError: See :meth:`JsonInference.fields`.
        """
        return JsonParser(JsonInference(url, records).fields())

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
    """

    def __init__(self, url: str, records: Sequence[bytes]) -> None:
        self._url = url
        self._records = records[:INFERRED_RECORDS]

    def fields(self) -> JsonFields:
        """Return the schema, with the keys of all records in the order of their first occurrence.

        The type of a value is the first of bool, int64, float64 and str that all values have; a key whose values are
        null is str. A list is a :class:`.VarLen`, of float64 if it is always empty. Objects become nested schemas, and
        objects that are always empty are left out.

        Records that are not JSON or no objects are left to the reader, which reports or skips them.

        Raises:
            JsonParseError: There is no object, or the values of a key have no common type.
        """
        values = [load(record) for record in self._records if problem_of(record) is None]
        objects = [value for value in values if isinstance(value, dict)]
        if not objects:
            cure = "pass schema=None for other values" if values else "check the format of the files"
            self._fail("", f"the start of the file contains no JSON object, so the keys are unknown; {cure}")
        found = self._fields(objects, "", 1)
        return found if found else self._fail("", "all objects are empty, so the keys are unknown")

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
        if kinds == {int} and all(_INT64.min <= value <= _INT64.max for value in values):
            return np.dtype(np.int64)
        if kinds <= {int, float}:
            return np.dtype(np.float64)
        first = next((value for value in values if type(value) is not type(values[0])), values[0])
        shown_values = f"{shown(values[0])} and {shown(first)}"
        return self._fail(path, f"the values {shown_values} have no type that a schema can contain")

    def _fail(self, path: str, reason: str) -> NoReturn:
        raise JsonParseError(self._url, 0, None, None, path, f"{reason}; {_CURE}")
