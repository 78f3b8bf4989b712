"""The error about a feature that a record lacks names those that it has."""

from __future__ import annotations

import pytest

import aiostream_data as asd
from aiostream_data.errors import ExampleParseError
from aiostream_data.formats.example import parse_example
from aiostream_data.formats.example_writer import encode_example, encode_sequence_example
from aiostream_data.formats.sequence_example import parse_sequence_example

LABEL = {"label": asd.FixedLen((), int)}


def told(record: bytes) -> str:
    with pytest.raises(ExampleParseError) as caught:
        parse_example([encode_example({"label": 1}), record], LABEL)
    assert caught.value.record == 1
    return caught.value.found


def test_the_features_of_the_record_are_listed() -> None:
    assert told(encode_example({"labels": 1, "image": b""})).endswith("the record has the features 'image', 'labels'")
    assert told(encode_example({})).endswith("the record has no features")


def test_the_list_is_bounded_in_names_and_in_characters() -> None:
    found = told(encode_example({f"{number:03d}" + "x" * 500: number for number in range(500)}))
    assert found.endswith(", ...")
    assert found.count("...'") == 20
    assert len(found) < 1200


def test_a_feature_without_a_list_is_said_to_be_there() -> None:
    entry = b"\x0a\x05label\x12\x00"
    features = b"\x0a" + bytes([len(entry)]) + entry
    found = told(b"\x0a" + bytes([len(features)]) + features)
    assert found.endswith("the feature exists but has no list of values")


def test_a_sequence_example_is_recognised_where_an_example_was_expected() -> None:
    assert "parse_sequence_example()" in told(encode_sequence_example({"id": 1}, {"label": [1, 2]}))


def test_the_feature_lists_of_the_record_are_listed() -> None:
    record = encode_sequence_example({"id": 1}, {"words": [1, 2], "tags": [3]})
    with pytest.raises(ExampleParseError, match="no such list; the record has the feature lists 'tags', 'words'"):
        parse_sequence_example(record, {}, LABEL)


def test_a_record_that_is_an_image_is_called_one() -> None:
    found = told(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00")
    assert "the record is a JPEG image: decode it in a function passed to map()" in found
