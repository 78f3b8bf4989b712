"""Parse JSON records to typed columns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from aiostream_data import _native
from aiostream_data._native.json_rows_py import OUT_OF_RANGE, JsonFault, Parsed
from aiostream_data.errors import JsonParseError
from aiostream_data.formats.features import VarLen, storage_dtype
from aiostream_data.formats.first_type import type_inferred_from
from aiostream_data.formats.json_schema import JsonFields, leaves_of, nodes_of, paths_of, structure_of_fields
from aiostream_data.formats.json_values import Describe, Problem, parse_error, problem_of, quoted
from aiostream_data.rows.columns import Column, VarColumn, object_array
from aiostream_data.rows.records import Columns
from aiostream_data.rows.structure import LEAF, NULLABLE, Structure, graft

_END_OF_VALUE: Final = json.JSONDecoder()


@dataclass(frozen=True)
class JsonParser:
    """Parser of JSON records with a schema. Picklable and thread-safe.

    Attributes:
        schema: Types by key; see :func:`.checked_json_schema`.
        inferred_from: URL of the file from which the types were inferred, for error messages; "" if they are declared.
    """

    wraps: ClassVar[bool] = False

    schema: JsonFields
    inferred_from: str = field(default="", compare=False, repr=False)

    @property
    def structure(self) -> Structure:
        """Structure of an element: nested dicts with one leaf per value of the schema."""
        return structure_of_fields(self.schema)

    @property
    def element_specs(self) -> tuple[tuple[tuple[int | None, ...], Any, bool], ...]:
        """Shape, dtype and ``ragged`` flag of each leaf of an element."""
        types = [leaf.type for leaf in leaves_of(self.schema)]
        return tuple(kind.spec if isinstance(kind, VarLen) else ((), storage_dtype(kind), False) for kind in types)

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        """Parse a chunk of records. The result has one row per record, with the row ids of the chunk.

        A leaf is nullable in the result only if one of the records has no value for it. Text refers to the buffer of
        the records, unless a text has an escape sequence.

        Raises:
            JsonParseError: A record is not JSON or does not match the schema. The error names the first such record.
        """
        (records,) = chunk.leaves
        assert isinstance(records, VarColumn)
        buffer = np.ascontiguousarray(records.values)
        found = _native.parse_json(buffer, records.starts, records.lengths, nodes_of(self.schema))
        if isinstance(found, JsonFault):
            raise self._error(found, records, describe)
        leaves: list[Column] = []
        marks = []
        for leaf, parsed in zip(leaves_of(self.schema), found, strict=True):
            leaves.append(_column(leaf.type, parsed))
            valid = parsed[3]
            is_complete = bool(valid.all())
            marks.append(LEAF if is_complete else NULLABLE)
            if not is_complete:
                leaves.append(valid)
        is_shared = any(isinstance(leaf, VarColumn) and leaf.values is buffer for leaf in leaves)
        structure = graft(self.structure, marks)
        return Columns(structure, tuple(leaves), chunk.ids, chunk.lease if is_shared else None)

    def _error(self, fault: JsonFault, records: VarColumn, describe: Describe) -> JsonParseError:
        record = records.element(fault.row)
        problem = problem_of(record)
        key = "" if problem else paths_of(self.schema)[fault.node]
        told = type_inferred_from(self.inferred_from, describe(fault.row)[0])
        return parse_error(records, fault.row, describe, key, problem or self._mismatch(fault, record, told))

    def _mismatch(self, fault: JsonFault, record: bytes, told: str) -> Problem:
        """Describe a value of valid JSON that is not of the type in the schema."""
        place = max(0, fault.place)
        found = f", found {_value_at(record, place)}" if fault.place >= 0 else ""
        if not fault.node:
            return Problem(place, f"expected an object with the keys of schema={found}")
        expected = _expected(self.schema, fault.node)
        if fault.code == OUT_OF_RANGE:
            return Problem(place, f"a number is out of range for {expected}{told}{found}; declare a larger type")
        cure = "declare the type of the values, or skip such records with on_error='skip'"
        return Problem(place, f"expected {expected} or null{told}{found}; {cure}")


def _value_at(record: bytes, place: int) -> str:
    text = record[place:].decode()
    return quoted(text[: _END_OF_VALUE.raw_decode(text)[1]].encode())


def _expected(schema: JsonFields, number: int) -> str:
    """Describe the type of a node."""
    if nodes_of(schema)[number].fields:
        return "an object"
    path = paths_of(schema)[number]
    kind = next(leaf.type for leaf in leaves_of(schema) if leaf.path == path)
    if isinstance(kind, VarLen):
        return f"a list of {_name(kind.type)}"
    return _name(kind)


def _name(kind: Any) -> str:
    return "str" if kind is str else kind.name


def _column(kind: Any, parsed: Parsed) -> Column:
    values, starts, lengths, _ = parsed
    if isinstance(values, tuple):
        texts = VarColumn(*values, "str").elements()
        values = object_array(texts)
    if starts is None or lengths is None:
        return values
    return VarColumn(values, starts, lengths, "array" if isinstance(kind, VarLen) else "str")
