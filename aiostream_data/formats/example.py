"""Parse serialized ``tf.train.Example`` records into columns, without TensorFlow or protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.example_py import (
    ANY_NUMBER,
    BYTES,
    FLOAT,
    INT64,
    MALFORMED,
    MISSING,
    WRONG_KIND,
    ParseFault,
    Wanted,
)
from aiostream_data.arguments import several
from aiostream_data.errors import ArgumentTypeError, ExampleParseError, PlanError
from aiostream_data.formats.feature_columns import feature_column
from aiostream_data.formats.feature_names import instead_of_feature, instead_of_message
from aiostream_data.formats.features import (
    Feature,
    FeatureSpec,
    FixedLen,
    FixedLenSequence,
    checked_features,
    feature_kind,
    values_per_row,
)
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, Structure

Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""The function ``describe(row)`` returns the URL and the record number for a row."""

_KINDS = {"bytes": BYTES, "float": FLOAT, "int64": INT64}
_LISTS = {BYTES: "a bytes list", FLOAT: "a float list", INT64: "an int64 list"}
_DTYPES = {BYTES: "bytes or str", FLOAT: "a floating dtype", INT64: "an integer dtype"}
_LEAST_NBYTES = {BYTES: 2, FLOAT: 4, INT64: 1}
"""Minimum size in bytes of one encoded value, by kind of value."""


class _Misfit(Exception):
    """A record does not match the feature descriptions.

    The method ``parse`` converts this exception to an ``ExampleParseError`` with the URL and the number of the record.
    """

    def __init__(self, row: int, feature: str, expected: str, found: str) -> None:
        super().__init__(row, feature, expected, found)
        self.row = row
        self.feature = feature
        self.expected = expected
        self.found = found


class ExampleParser:
    """Parser for selected features of ``tf.train.Example`` records. Picklable and thread-safe.

    The parser is equivalent to ``tf.io.parse_example``: it ignores other features, and uses defaults for missing
    features. Unlike TensorFlow, this parser accepts all valid protobuf messages. For example, a list may mix packed and
    unpacked values, and unknown fields may occur anywhere.

    Attributes:
        features: Descriptions of the features to parse, by feature name.
        structure: Structure of an element: a dict with one leaf per feature, in the same order as ``features``.
    """

    wraps: ClassVar[bool] = False

    def __init__(self, features: Mapping[str, Feature]) -> None:
        """Validate the feature descriptions.

        Raises:
            PlanError: The mapping ``features`` is empty, or a value is not a feature description.
        """
        self.features = checked_features(features)
        self.structure = Structure("dict", tuple(self.features), (LEAF,) * len(self.features))
        self._wanted = [wanted(name, feature) for name, feature in self.features.items()]

    def __eq__(self, other: object) -> bool:
        """Return True for a parser of the same features in the same order."""
        return isinstance(other, ExampleParser) and self._described == other._described

    def __hash__(self) -> int:
        return hash(self._described)

    @cached_property
    def _described(self) -> str:
        """The features as text, which tells -0.0 and 0.0 apart."""
        return repr(self.features)

    @property
    def element_specs(self) -> tuple[FeatureSpec, ...]:
        """Shape, dtype and ``ragged`` flag of each leaf of an element, in the order of the leaves."""
        return tuple(feature.spec for feature in self.features.values())

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        """Parse a chunk of serialized records. The result has one row per record, with the row ids of the chunk.

        Args:
            chunk: Serialized records, stored in one ``bytes`` column.
            describe: Function that returns the URL and record number of a row, for error messages.

        Returns:
            One leaf per feature. If scalar bytes or str leaves refer to the chunk's buffer, the result keeps the
            chunk's lease. All leaves except scalar bytes and str leaves have their own memory.

        Raises:
            ExampleParseError: A record is damaged or does not match the feature descriptions. The error names the first
                damaged or mismatching record.
        """
        records = records_of(chunk, "parse_example")
        leaves, misfit = self._leaves_or_misfit(records)
        if misfit is not None:
            url, record = describe(misfit.row)
            raise ExampleParseError(url, record, misfit.feature, misfit.expected, misfit.found)
        shared = any(isinstance(leaf, VarColumn) and leaf.kind != "array" for leaf in leaves)
        return Columns(self.structure, leaves, chunk.ids, chunk.lease if shared else None)

    def _leaves_or_misfit(self, records: VarColumn) -> tuple[tuple[Column, ...], _Misfit | None]:
        """Return the parsed columns, or a ``_Misfit`` exception for the first record that does not match.

        The caller must raise the error. If this method raised the error, the error would refer to the ``_Misfit``
        exception and thus keep the records in memory.
        """
        try:
            return self._leaves(records), None
        except _Misfit as misfit:
            return (), self._first_misfit(records, misfit)

    def _leaves(self, records: VarColumn) -> tuple[Column, ...]:
        buffer = np.ascontiguousarray(records.values)
        stop = self._first_too_short(records.lengths)
        found = _native.parse_examples(buffer, records.starts[:stop], records.lengths[:stop], self._wanted)
        if isinstance(found, ParseFault):
            raise self._explained(found, records)
        columns = zip(self.features.items(), found, strict=True)
        return tuple(
            feature_column(feature, parsed, buffer, partial(_fail, name)) for (name, feature), parsed in columns
        )

    def _first_misfit(self, records: VarColumn, misfit: _Misfit) -> _Misfit:
        """Return the ``_Misfit`` exception with the lowest row number.

        A search is necessary, because the parser works feature by feature, not row by row.
        """
        while True:
            try:
                self._leaves(records.slice(0, misfit.row))
            except _Misfit as earlier:
                misfit = earlier
            else:
                return misfit

    def _first_too_short(self, lengths: NDArray[np.int64]) -> int:
        """Return the number of records to parse, up to and including the first record that is too short.

        A record that is too short cannot contain its required values. Parsing fails at this record or at an earlier
        one. Omitting later records prevents large allocations for values that short records cannot contain.
        """
        least = max(want.size * _LEAST_NBYTES[want.kind] * want.required for want in self._wanted)
        if not len(lengths) or _native.length_range(lengths)[0] >= least:
            return len(lengths)
        return int((lengths < least).argmax()) + 1

    def _explained(self, fault: ParseFault, records: VarColumn) -> _Misfit:
        if fault.code == MALFORMED:
            hint = instead_of_message(records.element(fault.record))
            return _Misfit(fault.record, "", "a tf.train.Example", f"damaged protobuf at byte {fault.found}{hint}")
        want = self._wanted[fault.feature]
        expected = _LISTS[want.kind] if want.size == ANY_NUMBER else f"{_LISTS[want.kind]} of {want.size}"
        if fault.code == MISSING:
            hint = instead_of_feature(records.element(fault.record), want.name.decode())
            found = f"no values, and its description has no default; {hint}"
        elif fault.code == WRONG_KIND:
            found = f"{_LISTS[fault.found]}; declare it with {_DTYPES[fault.found]}"
        else:
            found = f"{fault.found} values; declare it with that shape, or as VarLen for any number"
        return _Misfit(fault.record, want.name.decode(), expected, found)


def parse_example(serialized: bytes | Sequence[bytes], features: Mapping[str, Feature]) -> Any:
    """Parse one or more serialized ``tf.train.Example`` records outside a pipeline.

    The function is equivalent to ``tf.io.parse_single_example`` and ``tf.io.parse_example``.

    Args:
        serialized: One serialized record, or a sequence of serialized records.
        features: Descriptions of the features to parse, by feature name.

    Returns:
        A dict of values by feature name for one record, or a list of such dicts for a sequence.

    Raises:
        PlanError: A feature description is invalid.
        ArgumentTypeError: ``serialized`` is not bytes or a sequence of bytes.
        ExampleParseError: A record is damaged or does not match the feature descriptions. The error message contains
            the position of the record in the sequence.
    """
    parser = ExampleParser(features)
    records = (serialized,) if isinstance(serialized, bytes) else several("serialized", serialized, "bytes or a list")
    if not all(isinstance(record, (bytes, bytearray, memoryview)) for record in records):
        raise ArgumentTypeError("serialized must be bytes or a list of bytes")
    chunk = join_records(records)
    elements = parser.parse(chunk, lambda row: ("", row)).elements()
    return elements[0] if isinstance(serialized, bytes) else elements


def records_of(chunk: Columns, name: str) -> VarColumn:
    """Return the column of a chunk that contains the serialized records.

    Raises:
        PlanError: The records are text (str) instead of bytes.
    """
    (records,) = chunk.leaves
    assert isinstance(records, VarColumn)
    if records.kind != "bytes":
        cure = "read TFRecord files with from_tfrecord()"
        raise PlanError(f"{name}() needs serialized bytes, got {records.kind}: {cure}")
    return records


def join_records(records: Sequence[bytes]) -> Columns:
    """Copy records into one chunk with a single buffer. The row id of each record is (0, position)."""
    lengths = np.array([len(record) for record in records], np.int64)
    values = np.frombuffer(b"".join(records), np.uint8)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths)
    return records_chunk(column, RowIds.run(0, 0, len(records)))


def wanted(name: str, feature: Feature) -> Wanted:
    """Convert a feature description to the form that the native parser uses."""
    kind = _KINDS[feature_kind(feature.type)]
    if isinstance(feature, FixedLen):
        return Wanted(name.encode(), kind, values_per_row(feature.shape), feature.default is None)
    required = isinstance(feature, FixedLenSequence) and not feature.allow_missing
    return Wanted(name.encode(), kind, ANY_NUMBER, required)


def _fail(feature: str, row: int, expected: str, found: str) -> NoReturn:
    raise _Misfit(row, feature, expected, found)
