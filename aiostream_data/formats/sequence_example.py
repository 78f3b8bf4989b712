"""Parse serialized ``tf.train.SequenceExample`` records: context features and per-step features.

The first field of ``SequenceExample {Features context = 1; FeatureLists feature_lists = 2}`` is also the first field of
Example. Therefore :class:`~aiostream_data.formats.example.ExampleParser` parses the context. A feature list contains
one Feature message for each step. The parser wraps each step as an Example with one feature, and parses all steps of a
chunk as if they were records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.example_py import DamagedMessageError, fields, map_entry
from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, ExampleParseError, PlanError
from aiostream_data.formats.example import Describe, ExampleParser, join_records, records_of
from aiostream_data.formats.example_writer import wrap_feature
from aiostream_data.formats.feature_names import instead_of_feature_list, instead_of_message
from aiostream_data.formats.features import Feature, FeatureSpec, FixedLen, FixedLenSequence, VarLen, checked_features
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.records import Columns
from aiostream_data.rows.structure import LEAF, Structure

_FIRST_TAG, _SECOND_TAG = 0x0A, 0x12


class RaggedSteps(NamedTuple):
    """Values of a sequence feature with a varying number of values per step.

    Attributes:
        values: Values of all steps, concatenated.
        lengths: int64 array with the number of values in each step.
    """

    values: NDArray[Any]
    lengths: NDArray[np.int64]


class SequenceExampleParser:
    """Parser for selected features of ``tf.train.SequenceExample`` records. Picklable and thread-safe.

    Equivalent to ``tf.io.parse_sequence_example``. The parser converts each record to an element
    ``{"context": {name: value}, "sequences": {name: array or RaggedSteps}}``.

    Attributes:
        structure: Structure of an element, with the features in the order of ``context`` and ``sequences``.
    """

    wraps: ClassVar[bool] = False

    def __init__(self, context: Mapping[str, Feature], sequences: Mapping[str, Feature]) -> None:
        """Validate the feature descriptions.

        Args:
            context: Descriptions of the context features by name; may be empty.
            sequences: For each feature list name, the description of one step. Features of type FixedLen (without a
                default) and FixedLenSequence produce an array of shape (steps, \\*shape). Features of type VarLen and
                Ragged produce :class:`RaggedSteps`. A missing feature list is an error for FixedLen, and for
                FixedLenSequence without ``allow_missing``. For features of other types, a missing feature list has zero
                steps.

        Raises:
            PlanError: The mappings ``context`` and ``sequences`` are both empty, or a description is invalid.
        """
        for name, given in (("context", context), ("sequences", sequences)):
            if not isinstance(given, Mapping):
                raise ArgumentTypeError(f"{name} must be a dict of features by name, got {shown(given)}")
        if not context and not sequences:
            raise PlanError("context and sequences must name at least one feature, got none")
        self._context = ExampleParser(context) if context else None
        self._sequences = [
            _Sequence(name, feature) for name, feature in (checked_features(sequences) if sequences else {}).items()
        ]
        context_structure = self._context.structure if self._context else Structure("dict")
        self.structure = Structure(
            "dict",
            ("context", "sequences"),
            (
                context_structure,
                Structure("dict", tuple(sequences), tuple(one.structure for one in self._sequences)),
            ),
        )

    def __eq__(self, other: object) -> bool:
        """Return True for a parser of the same features in the same order."""
        if not isinstance(other, SequenceExampleParser):
            return False
        return self._context == other._context and repr(self._sequences) == repr(other._sequences)

    def __hash__(self) -> int:
        return hash((self._context, repr(self._sequences)))

    @property
    def element_specs(self) -> tuple[FeatureSpec, ...]:
        """Shape, dtype and ``ragged`` flag of each leaf of an element, in leaf order."""
        context = self._context.element_specs if self._context else ()
        return (*context, *(spec for one in self._sequences for spec in one.specs))

    def parse(self, chunk: Columns, describe: Describe) -> Columns:
        """Parse a chunk of serialized records into one row per record. See :meth:`ExampleParser.parse`.

        Raises:
            ExampleParseError: A record is damaged or does not match the feature descriptions.
        """
        records = records_of(chunk, "parse_sequence_example")
        parsed = self._context.parse(chunk, describe) if self._context else None
        names = {one.name.encode() for one in self._sequences}
        found = [_feature_lists(record, names, row, describe) for row, record in enumerate(records.elements())]
        leaves: list[Column] = list(parsed.leaves) if parsed else []
        for one in self._sequences:
            leaves += one.columns(found, records, describe)
        return Columns(self.structure, tuple(leaves), chunk.ids, parsed.lease if parsed else None)


def parse_sequence_example(
    serialized: bytes, context: Mapping[str, Feature], sequences: Mapping[str, Feature]
) -> dict[str, dict[str, Any]]:
    """Parse one serialized ``tf.train.SequenceExample`` outside a pipeline.

    Equivalent to ``tf.io.parse_single_sequence_example``.

    Args:
        serialized: The serialized record.
        context: Descriptions of the context features by name; may be empty.
        sequences: For each feature list name, the description of one step; may be empty if ``context`` is not empty.

    Returns:
        The element ``{"context": {name: value}, "sequences": {name: array or RaggedSteps}}``. Sequences of VarLen and
        Ragged features become :class:`RaggedSteps`; other sequences become arrays.

    Raises:
        PlanError: A feature description is invalid.
        ExampleParseError: The record is damaged or does not match the feature descriptions.
    """
    parser = SequenceExampleParser(context, sequences)
    element: dict[str, dict[str, Any]] = parser.parse(join_records([serialized]), lambda row: ("", row)).element(0)
    return element


@dataclass(frozen=True)
class _Sequence:
    """Description of one feature list in a SequenceExample."""

    name: str
    feature: Feature

    def __post_init__(self) -> None:
        if isinstance(self.feature, FixedLen) and self.feature.default is not None:
            raise PlanError(f"a step of {self.name!r} cannot have a default, got {self.feature.default!r}")

    @property
    def required(self) -> bool:
        feature = self.feature
        return isinstance(feature, FixedLen) or (isinstance(feature, FixedLenSequence) and not feature.allow_missing)

    @property
    def structure(self) -> Structure:
        if isinstance(self.feature, VarLen):
            return Structure("namedtuple", RaggedSteps._fields, (LEAF, LEAF), RaggedSteps)
        return LEAF

    @property
    def specs(self) -> tuple[FeatureSpec, ...]:
        if isinstance(self.feature, VarLen):
            return self.feature.spec, FeatureSpec((None,), np.dtype(np.int64))
        return (self._step.spec._replace(shape=(None, *self._step.shape)),)

    @property
    def _step(self) -> FixedLen:
        assert not isinstance(self.feature, VarLen)
        return FixedLen(self.feature.shape, self.feature.dtype)

    def columns(self, lists: list[dict[bytes, list[bytes]]], records: VarColumn, describe: Describe) -> list[Column]:
        """Build the columns of this sequence feature from the feature lists of all records."""
        found = [of_record.get(self.name.encode()) for of_record in lists]
        if self.required and None in found:
            expected = "a feature list, or allow_missing in its description"
            row = found.index(None)
            hint = instead_of_feature_list(records.element(row))
            self._fail(describe, row, expected, f"no such list; {hint}")
        steps = np.array([len(one or ()) for one in found], np.int64)
        wrapped = [wrap_feature(self.name, step) for one in found for step in one or ()]
        row_of = np.repeat(np.arange(len(found)), steps)
        step_feature = self.feature if isinstance(self.feature, VarLen) else self._step
        parser = ExampleParser({self.name: step_feature})
        (column,) = parser.parse(join_records(wrapped), lambda step: describe(int(row_of[step]))).leaves
        starts = np.cumsum(steps) - steps
        if not isinstance(self.feature, VarLen):
            return [VarColumn(_as_array(column), starts, steps, "array")]
        assert isinstance(column, VarColumn)
        ends = np.concatenate([[0], np.cumsum(column.lengths)])
        value_starts = ends[starts]
        values = VarColumn(column.values, value_starts, ends[starts + steps] - value_starts, "array")
        return [values, VarColumn(column.lengths, starts, steps, "array")]

    def _fail(self, describe: Describe, row: int, expected: str, found: str) -> NoReturn:
        url, record = describe(row)
        raise ExampleParseError(url, record, self.name, expected, found)


def _as_array(column: Column) -> NDArray[Any]:
    """Convert a column of scalar bytes or str values to an object array. Return other columns unchanged."""
    if not isinstance(column, VarColumn):
        return column
    out = np.empty(len(column), object)
    out[:] = column.elements()
    return out


def _feature_lists(record: bytes, names: Set[bytes], row: int, describe: Describe) -> dict[bytes, list[bytes]]:
    """Return the serialized steps of the requested feature lists of a record.

    If several lists have the same name, the last list is used.
    """
    try:
        return dict(_entries(memoryview(record), names))
    except DamagedMessageError as damage:
        url, number = describe(row)
        found = f"damaged protobuf at byte {damage.at}{instead_of_message(record)}"
        raise ExampleParseError(url, number, "", "a tf.train.SequenceExample", found) from None


def _entries(record: memoryview, names: Set[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    for tag, _, start, stop in fields(record, 0, len(record)):
        if tag != _SECOND_TAG:
            continue
        for entry_tag, _, entry_start, entry_stop in fields(record, start, stop):
            if entry_tag == _FIRST_TAG:
                key, list_start, list_stop = map_entry(record, entry_start, entry_stop)
                if key in names:
                    steps = fields(record, list_start, list_stop)
                    yield key, [bytes(record[a:b]) for step_tag, _, a, b in steps if step_tag == _FIRST_TAG]
