from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import example_py
from aiostream_data._native.example_py import ANY_NUMBER, BYTES, FLOAT, INT64, ParseFault, Wanted
from aiostream_data.formats.example import parse_example
from aiostream_data.formats.example_writer import encode_example, encode_sequence_example
from aiostream_data.formats.features import VarLen
from aiostream_data.formats.sequence_example import parse_sequence_example

native = pytest.importorskip("aiostream_data._native.example", reason="the native core is not built")

NAMES = [b"a", b"b", b"ab", b""]

WANTED = st.lists(
    st.builds(
        Wanted,
        st.sampled_from(NAMES),
        st.sampled_from([BYTES, FLOAT, INT64]),
        st.sampled_from([ANY_NUMBER, 1, 2, 3]),
        st.booleans(),
    ),
    min_size=1,
    unique_by=lambda want: want.name,
)

int64s = st.integers(-(2**63), 2**63 - 1)
float32s = st.floats(width=32)


def varint(value: int, padding: int = 0) -> bytes:
    """Return a varint, with bytes that protobuf allows and nobody needs when ``padding`` is given."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    padding = min(padding, 9 - len(out))
    return bytes([*out, value]) if padding <= 0 else bytes([*out, value | 128, *[128] * (padding - 1), 0])


def delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    """Draw a field that no message of an Example has, or nothing."""
    number = draw(st.integers(16, 2**29 - 1)) << 3
    return draw(
        st.sampled_from(
            [b"", b"", varint(number) + b"\x85\x01", varint(number | 1) + bytes(8), varint(number | 5) + bytes(4)]
        )
    )


@st.composite
def int64_lists(draw: st.DrawFn) -> bytes:
    """Draw an Int64List: runs of values, packed or one by one."""
    parts = [draw(unknown_fields())]
    for values in draw(st.lists(st.lists(int64s, max_size=4), max_size=3)):
        encoded = [varint(value, draw(st.sampled_from([0, 0, 0, 2]))) for value in values]
        single = draw(st.booleans())
        parts.append(b"".join(b"\x08" + one for one in encoded) if single else delimited(1, b"".join(encoded)))
    return b"".join(parts)


@st.composite
def float_lists(draw: st.DrawFn) -> bytes:
    parts = [draw(unknown_fields())]
    for bits in draw(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=3)):
        encoded = [struct.pack("<I", one) for one in bits]
        single = draw(st.booleans())
        parts.append(b"".join(b"\x0d" + one for one in encoded) if single else delimited(1, b"".join(encoded)))
    return b"".join(parts)


@st.composite
def bytes_lists(draw: st.DrawFn) -> bytes:
    return draw(unknown_fields()) + b"".join(delimited(1, one) for one in draw(st.lists(st.binary(max_size=6))))


@st.composite
def feature_messages(draw: st.DrawFn) -> bytes:
    lists = st.one_of(
        bytes_lists().map(lambda one: delimited(BYTES, one)),
        float_lists().map(lambda one: delimited(FLOAT, one)),
        int64_lists().map(lambda one: delimited(INT64, one)),
        unknown_fields(),
    )
    return b"".join(draw(st.lists(lists, max_size=2)))


@st.composite
def example_messages(draw: st.DrawFn) -> bytes:
    """Draw an Example: names in any order and number, fields in any order, unknown fields anywhere."""
    features = []
    for name in draw(st.lists(st.sampled_from([*NAMES, b"unasked"]), max_size=4)):
        fields = [delimited(1, name), delimited(2, draw(feature_messages())), draw(unknown_fields())]
        features.append(delimited(1, b"".join(draw(st.permutations(fields)))))
    cut = draw(st.integers(0, len(features)))
    first, second = b"".join(features[:cut]), b"".join(features[cut:])
    return delimited(1, first) + draw(unknown_fields()) + delimited(1, second)


def parsed_by(parser: Any, records: list[bytes], wanted: list[Wanted]) -> Any:
    """Return the fault, or the bytes of every array: NaNs included, bit for bit."""
    lengths = np.array([len(record) for record in records], np.int64)
    values = np.frombuffer(b"".join(records), np.uint8)
    found = parser.parse_examples(values, np.cumsum(lengths) - lengths, lengths, wanted)
    if isinstance(found, ParseFault):
        return found
    return [(array.dtype, array.tobytes()) for feature in found for array in feature]


@given(st.lists(example_messages(), max_size=3), WANTED)
def test_native_and_twin_agree_on_every_valid_example(records: list[bytes], wanted: list[Wanted]) -> None:
    lenient = [want._replace(required=False) for want in wanted]
    for asked in (wanted, lenient):
        found = parsed_by(native, records, asked)
        assert found == parsed_by(example_py, records, asked)
        assert not isinstance(found, ParseFault) or found.code != example_py.MALFORMED


@given(example_messages(), WANTED, st.data())
def test_native_and_twin_agree_on_damaged_examples(record: bytes, wanted: list[Wanted], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(record)))
    damaged = record[:at] + data.draw(st.binary(max_size=3)) + record[at + data.draw(st.integers(0, 3)) :]
    wanted = [want._replace(required=False) for want in wanted]
    records = [record, damaged, record]
    assert parsed_by(native, records, wanted) == parsed_by(example_py, records, wanted)


@given(st.binary(max_size=20), WANTED)
def test_native_and_twin_agree_on_any_bytes(data: bytes, wanted: list[Wanted]) -> None:
    assert parsed_by(native, [data], wanted) == parsed_by(example_py, [data], wanted)


@pytest.mark.parametrize("parser", [native, example_py], ids=["native", "twin"])
@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (0, 4), (4, 0), (3, 1), (2**62, 2**62)])
def test_a_record_outside_the_buffer_is_an_index_error(parser: Any, start: int, length: int) -> None:
    wanted = [Wanted(b"a", INT64, ANY_NUMBER, False)]
    with pytest.raises(IndexError, match="outside a buffer of 3"):
        parser.parse_examples(np.zeros(3, np.uint8), np.array([start]), np.array([length]), wanted)


values = st.one_of(
    st.lists(int64s, min_size=1).map(lambda found: (np.int64, found)),
    st.lists(float32s, min_size=1).map(lambda found: (np.float32, found)),
    st.lists(st.binary(max_size=200), min_size=1).map(lambda found: (bytes, found)),
    st.lists(st.text(max_size=20), min_size=1).map(lambda found: (str, found)),
)


@given(st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=5))
def test_what_is_written_is_read_back(written: dict[str, tuple[Any, list[Any]]]) -> None:
    record = encode_example({name: found for name, (_, found) in written.items()})
    parsed = parse_example(record, {name: VarLen(dtype) for name, (dtype, _) in written.items()})
    for name, (dtype, found) in written.items():
        np.testing.assert_array_equal(parsed[name], np.array(found, object if dtype in (bytes, str) else dtype))


@given(st.lists(st.lists(int64s, max_size=12), max_size=6), st.lists(st.lists(st.binary(max_size=9)), max_size=6))
def test_sequences_that_are_written_are_read_back(numbers: list[list[int]], words: list[list[bytes]]) -> None:
    record = encode_sequence_example({}, {"n": [np.array(step, np.int64) for step in numbers], "w": words})
    found = parse_sequence_example(record, {}, {"n": VarLen(np.int64), "w": VarLen(bytes)})["sequences"]
    for name, steps in (("n", numbers), ("w", words)):
        flat: list[Any] = [value for step in steps for value in step]
        assert found[name].values.tolist() == flat
        assert found[name].lengths.tolist() == [len(step) for step in steps]
