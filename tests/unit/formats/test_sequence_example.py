from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import ExampleParseError, PlanError
from aiostream_data.formats.example import join_records
from aiostream_data.formats.example_writer import encode_sequence_example
from aiostream_data.formats.features import Feature, FixedLen, FixedLenSequence, Ragged, VarLen
from aiostream_data.formats.sequence_example import RaggedSteps, SequenceExampleParser, parse_sequence_example


def test_steps_are_stacked_and_steps_of_any_length_come_with_their_lengths() -> None:
    record = encode_sequence_example({"id": 7}, {"pose": [[1.0, 2.0], [3.0, 4.0]], "words": [["a"], [], ["b", "c"]]})
    found = parse_sequence_example(
        record, {"id": FixedLen((), int)}, {"pose": FixedLen((2,), np.float64), "words": VarLen(str)}
    )
    assert found["context"] == {"id": 7}
    assert found["sequences"]["pose"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    words = found["sequences"]["words"]
    assert isinstance(words, RaggedSteps)
    assert (words.values.tolist(), words.lengths.tolist()) == (["a", "b", "c"], [1, 0, 2])


def test_rows_keep_their_own_steps_and_their_ids() -> None:
    records = [encode_sequence_example({}, {"n": [[k] * k for k in range(i)]}) for i in range(5)]
    parser = SequenceExampleParser({}, {"n": Ragged(np.int32)})
    chunk = parser.parse(join_records(records).slice(1, 5), lambda row: ("", row))
    assert chunk.ids.ordinals.tolist() == [1, 2, 3, 4]
    rows = [element["sequences"]["n"] for element in chunk.elements()]
    assert [row.lengths.tolist() for row in rows] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert rows[3].values.tolist() == [1, 2, 2, 3, 3, 3]


def test_a_missing_list_is_an_error_unless_it_may_be_missing() -> None:
    record = encode_sequence_example({}, {})
    found = parse_sequence_example(
        record, {}, {"a": FixedLenSequence((3,), np.uint8, allow_missing=True), "b": VarLen(bytes)}
    )["sequences"]
    assert found["a"].shape == (0, 3)
    assert found["b"].lengths.tolist() == []
    for feature in (FixedLen((), int), FixedLenSequence((), int)):
        with pytest.raises(ExampleParseError, match="feature 'a': expected a feature list"):
            parse_sequence_example(record, {}, {"a": feature})


@pytest.mark.parametrize(
    ("steps", "feature", "message"),
    [
        ([[1], [1, 2]], FixedLen((), int), "an int64 list of 1, found 2 values"),
        ([[1], []], FixedLen((), int), "found no values"),
        ([[1], [1.0]], VarLen(int), "an int64 list, found a float list"),
    ],
)
def test_a_step_that_does_not_fit_names_its_record(steps: list[Any], feature: Feature, message: str) -> None:
    records = [encode_sequence_example({}, {"x": [[1], [2]]}), encode_sequence_example({}, {"x": steps})]
    parser = SequenceExampleParser({}, {"x": feature})
    with pytest.raises(ExampleParseError) as caught:
        parser.parse(join_records(records), lambda row: ("f", row))
    assert message in str(caught.value)
    assert (caught.value.record, caught.value.feature) == (1, "x")


def test_a_cut_record_is_damage_wherever_it_is_cut() -> None:
    record = encode_sequence_example({"id": 7}, {"x": [[1, 2, 3], [300]]})
    parser = SequenceExampleParser({"id": FixedLen((), int, 0)}, {"x": VarLen(int)})
    whole_parts = {0, len(encode_sequence_example({"id": 7}, {})) - 2}
    for stop in set(range(len(record))) - whole_parts:
        with pytest.raises(ExampleParseError):
            parser.parse(join_records([record[:stop]]), lambda row: ("f", row))


@pytest.mark.parametrize("sequences", [{}, {"x": FixedLen((), int, 1)}, {"x": int}])
def test_descriptions_that_make_no_sense_are_refused(sequences: Any) -> None:
    with pytest.raises(PlanError):
        SequenceExampleParser({}, sequences)


def test_specs_follow_the_structure_and_the_parser_survives_pickling() -> None:
    parser = SequenceExampleParser({"id": FixedLen((), int)}, {"a": FixedLen((2,), np.float32), "b": VarLen(bytes)})
    again = pickle.loads(pickle.dumps(parser))
    assert again.structure == parser.structure
    assert again.structure.paths() == ["context.id", "sequences.a", "sequences.b.values", "sequences.b.lengths"]
    assert [spec.shape for spec in again.element_specs] == [(), (None, 2), (None,), (None,)]
