"""Parse serialized ``tf.train.Example`` records into columns, without TensorFlow or protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

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
    Fault,
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
from aiostream_data.rows.records import Column, Columns, VarColumn, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF, Structure

Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""``describe(row)`` names the object that a row of the chunk came from, and its record number there."""

_KINDS = {"bytes": BYTES, "float": FLOAT, "int64": INT64}
_LISTS = {BYTES: "a bytes list", FLOAT: "a float list", INT64: "an int64 list"}
_DTYPES = {BYTES: "bytes or str", FLOAT: "a floating dtype", INT64: "an integer dtype"}
_LEAST_NBYTES = {BYTES: 2, FLOAT: 4, INT64: 1}
"""Bytes that one value takes at least in a record."""


class _Misfit(Exception):
    """A row does not fit; becomes an ExampleParseError where it is known what row that is."""

    def __init__(self, row: int, feature: str, expected: str, found: str) -> None:
        super().__init__(row, feature, expected, found)
        self.row = row
        self.feature = feature
        self.expected = expected
        self.found = found


class ExampleParser:
    """Takes the described features out of records; picklable, and safe to use from several threads.

    As ``tf.io.parse_example``: other features are passed over, a missing one takes its default. Where
    TensorFlow's parser falls short of protobuf, this one follows protobuf: packed and single values may
    be mixed in one list, unknown fields may stand anywhere.

    Attributes:
        features: The descriptions, by name.
        structure: A dict of one leaf per feature, in the mapping's order.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        """Check the descriptions.

        Raises:
            PlanError: There is none, or one is no feature.
        """
        self.features = checked_features(features)
        self.structure = Structure("dict", tuple(self.features), (LEAF,) * len(self.features))
        self._wanted = [wanted(name, feature) for name, feature in self.features.items()]

    @property
    def element_specs(self) -> tuple[FeatureSpec, ...]:
        """Shape, dtype and raggedness of an element's leaves, in leaf order."""
        return tuple(feature.spec for feature in self.features.values())

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        """Return one row per record, with the chunk's ids.

        Args:
            chunk: Records: one ``bytes`` column.
            describe: Says where a row came from; called only for an error.

        Returns:
            One leaf per feature. Scalar bytes and str leaves share the chunk's buffer (and only then
            does the result keep its lease); all other leaves own their memory.

        Raises:
            ExampleParseError: For the first record that is damaged or does not fit.
        """
        records = records_of(chunk, "parse_example")
        leaves, misfit = self._leaves_or_misfit(records)
        if misfit is not None:
            url, record = describe(misfit.row)
            raise ExampleParseError(url, record, misfit.feature, misfit.expected, misfit.found)
        shared = any(isinstance(leaf, VarColumn) and leaf.kind != "array" for leaf in leaves)
        return Columns(self.structure, leaves, chunk.ids, chunk.lease if shared else None)

    def _leaves_or_misfit(self, records: VarColumn) -> tuple[tuple[Column, ...], _Misfit | None]:
        """Return the columns, or what is wrong with the first record that does not fit.

        An error raised here would have the misfit for its context, and keep the records in memory.
        """
        try:
            return self._leaves(records), None
        except _Misfit as misfit:
            return (), self._first_misfit(records, misfit)

    def _leaves(self, records: VarColumn) -> tuple[Column, ...]:
        buffer = np.ascontiguousarray(records.values)
        stop = self._first_too_short(records.lengths)
        found = _native.parse_examples(buffer, records.starts[:stop], records.lengths[:stop], self._wanted)
        if isinstance(found, Fault):
            raise self._explained(found, records)
        columns = zip(self.features.items(), found, strict=True)
        return tuple(
            feature_column(feature, parsed, buffer, partial(_fail, name)) for (name, feature), parsed in columns
        )

    def _first_misfit(self, records: VarColumn, misfit: _Misfit) -> _Misfit:
        """Return the misfit with the lowest row: one may lie before that of another feature or kind."""
        while True:
            try:
                self._leaves(records.slice(0, misfit.row))
            except _Misfit as earlier:
                misfit = earlier
            else:
                return misfit

    def _first_too_short(self, lengths: NDArray[np.int64]) -> int:
        """Return how many records to parse: up to and with the first too short for what it must hold.

        Parsing fails there at the latest, so nothing is lost, and tiny records cannot make us allocate
        large arrays for values that they do not have.
        """
        least = max(want.size * _LEAST_NBYTES[want.kind] * want.required for want in self._wanted)
        if not len(lengths) or lengths.min() >= least:
            return len(lengths)
        return int((lengths < least).argmax()) + 1

    def _explained(self, fault: Fault, records: VarColumn) -> _Misfit:
        if fault.code == MALFORMED:
            hint = instead_of_message(records.element(fault.record))
            return _Misfit(fault.record, "", "a tf.train.Example", f"damaged protobuf at byte {fault.found}{hint}")
        want = self._wanted[fault.feature]
        expected = _LISTS[want.kind] if want.size == ANY_NUMBER else f"{_LISTS[want.kind]} of {want.size}"
        if fault.code == MISSING:
            hint = instead_of_feature(records.element(fault.record), want.name.decode())
            found = f"no such feature, and no default for it; {hint}"
        elif fault.code == WRONG_KIND:
            found = f"{_LISTS[fault.found]}: describe it with {_DTYPES[fault.found]}"
        else:
            found = f"{fault.found} values: describe it with that shape, or with VarLen for any number"
        return _Misfit(fault.record, want.name.decode(), expected, found)


def parse_example(serialized: bytes | Sequence[bytes], features: Mapping[str, Feature]) -> Any:
    """Parse one record, or several, outside a pipeline.

    As ``tf.io.parse_single_example`` and ``tf.io.parse_example``.

    Returns:
        For bytes: the element, a dict by feature name. For a sequence: a list of them.

    Raises:
        PlanError: A description makes no sense.
        ExampleParseError: A record is damaged or does not fit; its number is the position in the sequence.
    """
    parser = ExampleParser(features)
    records = (serialized,) if isinstance(serialized, bytes) else several("serialized", serialized, "bytes or a list")
    if not all(isinstance(record, (bytes, bytearray, memoryview)) for record in records):
        raise ArgumentTypeError("serialized must be bytes, or a list of them")
    chunk = join_records(records)
    elements = parser.parse(chunk, lambda row: ("", row)).elements()
    return elements[0] if isinstance(serialized, bytes) else elements


def records_of(chunk: Columns, name: str) -> VarColumn:
    """Return the column of serialized records.

    Raises:
        PlanError: They are texts.
    """
    (records,) = chunk.leaves
    assert isinstance(records, VarColumn)
    if records.kind != "bytes":
        cure = "read TFRecord files with from_tfrecord()"
        raise PlanError(f"{name}() needs serialized bytes, got {records.kind}: {cure}")
    return records


def join_records(records: Sequence[bytes]) -> Columns:
    """Return records as one chunk over one buffer, with the ids (0, position)."""
    lengths = np.array([len(record) for record in records], np.int64)
    values = np.frombuffer(b"".join(records), np.uint8)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths)
    return records_chunk(column, RowIds.run(0, 0, len(records)))


def wanted(name: str, feature: Feature) -> Wanted:
    """Return what the native parser has to look for."""
    kind = _KINDS[feature_kind(feature.type)]
    if isinstance(feature, FixedLen):
        return Wanted(name.encode(), kind, values_per_row(feature.shape), feature.default is None)
    required = isinstance(feature, FixedLenSequence) and not feature.allow_missing
    return Wanted(name.encode(), kind, ANY_NUMBER, required)


def _fail(feature: str, row: int, expected: str, found: str) -> NoReturn:
    raise _Misfit(row, feature, expected, found)
