"""Arrays that contradict their type are refused before their memory is read, with the column, and released once."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from arrow_producers import Made, bits, numbers, text_of
from arrow_reading import only_chunk, rows_of

from aiostream_data import ArrowDataError
from aiostream_data._native.arrow_nodes import MAX_DEPTH
from aiostream_data.rows.arrow.importing import read_arrow

pytestmark = pytest.mark.usefixtures("kernels")

NOWHERE = 16
"""An address that nothing may read."""

LONG = np.zeros(8, np.int64)


def int32s(**kwargs: Any) -> Made:
    return Made("i", 3, [None, numbers(1, 2, 3)], **kwargs)


def view(length: int, index: int = 0, offset: int = 0) -> Any:
    """One view of a string view array. Its first bytes are not used here."""
    return np.array([length, 0, index, offset], np.int32)


def views(*rows: Any, sizes: tuple[int, ...] = (20,), form: str = "vu", **kwargs: Any) -> Made:
    data = [np.full(20, ord("x"), np.uint8) for _ in sizes]
    return Made(form, len(rows), [None, np.concatenate(rows), *data, np.array(sizes, np.int64)], **kwargs)


def lists(offsets: Any, form: str = "+l", *more: Any) -> Made:
    return Made(form, len(offsets) - 1 + len(more), [None, offsets, *more], [int32s()])


def words() -> Made:
    return text_of(b"ab", b"c")


def coded(*indices: int, form: str = "i", dtype: Any = np.int32, dictionary: Any = words, **kwargs: Any) -> Made:
    return Made(form, len(indices), [None, np.array(indices, dtype)], (), dictionary(), **kwargs)


def refuse(column: Made, said: str, kind: type[Exception] = ArrowDataError) -> Any:
    """Read the column within a struct: it is refused with its name, and released once."""
    name = ctypes.create_string_buffer(b"x")
    column.schema.name = ctypes.addressof(name)
    made = Made("+s", min(max(column.array.length, 0), 3), [None], [column])
    with pytest.raises(kind, match=f"Arrow column 'x': .*{said}") as caught:
        only_chunk(made)
    error = caught.value
    error.__traceback__ = error.__cause__ = error.__context__ = None
    del caught
    gc.collect()
    assert (made.schema_releases, made.array_releases) == (1, 1)
    return error


# -- numbers of the structure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"length": -1}, "the array has -1 rows from row 0"),
        ({"offset": -1}, "the array has 3 rows from row -1"),
        ({"length": 2**63 - 1, "offset": 1}, "the array has 9223372036854775807 rows from row 1"),
        ({"length": 2**62}, "the array has 4611686018427387904 rows from row 0"),
        ({"length": 1, "offset": 2**56}, "the array has 1 rows from row 72057594037927936"),
        ({"null_count": -2}, "-2 of 3 rows are missing"),
        ({"null_count": 4}, "4 of 3 rows are missing"),
        ({"null_count": 1}, "1 rows are missing, but the validity buffer is absent"),
        ({"n_buffers": 1}, "has 1 buffers, but its type has 2"),
        ({"n_buffers": 0}, "has 0 buffers, but its type has 2"),
    ],
)
def test_numbers_that_contradict_the_type(fields: dict[str, int], said: str) -> None:
    column = int32s()
    for name, value in fields.items():
        setattr(column.array, name, value)
    refuse(column, said)


def test_more_buffers_than_the_type_has() -> None:
    refuse(Made("i", 3, [None, numbers(1, 2, 3), None]), "has 3 buffers, but its type has 2")


@pytest.mark.parametrize(
    "column",
    [
        Made("i", 3, [None, None]), Made("b", 3, [None, None]), Made("tdD", 3, [None, None]),
        Made("w:2", 3, [None, None]), Made("u", 3, [None, None, LONG]), Made("vu", 3, [None, None, LONG]),
        Made("+l", 3, [None, None], [int32s()]), Made("+vl", 3, [None, None, LONG], [int32s()]),
        Made("+vl", 3, [None, LONG, None], [int32s()]), coded(0), Made("u", 1, [None, numbers(0, 3), None]),
    ],
    ids=lambda made: ctypes.string_at(made.schema.format).decode(),
)  # fmt: skip
def test_absent_buffers_of_rows(column: Made) -> None:
    if column.inner is not None:
        column.address(1, None)
    refuse(column, r"the buffer [12] is absent, but [13] rows need \d+ bytes of it")


def test_a_struct_without_the_children_of_its_type() -> None:
    made = Made("+s", 3, [None], [int32s(name="x"), int32s(name="y")])
    made.array.n_children = 1
    with pytest.raises(ArrowDataError, match="the array has 1 children, but its type has 2"):
        only_chunk(made)


def test_children_that_are_shorter_than_their_parent() -> None:
    made = Made("+s", 4, [None], [int32s(name="x")])
    with pytest.raises(ArrowDataError, match="4 rows of a child are used, but the child has only 3 rows"):
        only_chunk(made)
    made = Made("+s", 2, [None], [int32s(name="x")], offset=2)
    with pytest.raises(ArrowDataError, match="4 rows of a child are used"):
        only_chunk(made)


def test_a_struct_and_its_child_can_both_have_offsets() -> None:
    made = Made("+s", 1, [None], [Made("i", 2, [None, numbers(1, 2, 3)], offset=1)], offset=1)
    [leaf] = only_chunk(made).leaves
    assert rows_of(leaf) == [3]


@pytest.mark.parametrize("form", ["+l", "+w:2", "+vL"])
def test_a_list_type_without_items(form: str) -> None:
    buffers = {"+l": [None, numbers(0)], "+w:2": [None], "+vL": [None, LONG, LONG]}[form]
    refuse(Made(form, 0, buffers), "needs 1 children, but has 0")
    refuse(Made(form, 0, buffers, [int32s(), int32s()]), "needs 1 children, but has 2")


def test_a_number_type_with_children() -> None:
    refuse(Made("i", 3, [None, numbers(1, 2, 3)], [int32s()]), "needs 0 children, but has 1")


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    ["", "x", "ii", "i ", "w", "w:", "w:-1", "w:1,2", "w:9999999999999", "+w:", "+w:²", "+", "+x", "ts", "tsx:", "tss",
     "tdX", "tD", "tDx", "é", "U\u0000", "v", "+v", "+vx", "\n"],
)  # fmt: skip
def test_formats_that_arrow_does_not_define(form: str) -> None:
    if form == "U\u0000":
        form = "U;"
    refuse(Made(form, 0, [None, None]), "is not defined by Arrow. Check the producer")


def test_rows_so_wide_that_their_size_overflows() -> None:
    column = Made("w:9999999999", 3, [None, LONG], offset=2**40)
    refuse(column, "the buffer 1 would have")
    outer = Made("+w:4000000000", 0, [None], [Made("+w:4000000000", 0, [None], [int32s()])])
    outer.array.length = 1
    refuse(outer, "4000000000 rows of a child are used, but the child has only 0 rows")


# -- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("offsets", "said", "row"),
    [
        ([-1, 0, 2], "row 0: the offset -1 is negative", 0),
        ([0, 2, 1], "row 1: the offsets decrease from 2 to 1", 1),
        ([0, -5, 2], "row 0: the offsets decrease from 0 to -5", 0),
        ([5, 5, 0], "row 1: the offsets decrease from 5 to 0", 1),
        ([0, 2**31 - 1, -(2**31)], "row 1: the offsets decrease", 1),
    ],
)
def test_offsets_that_do_not_ascend(dtype: Any, offsets: list[int], said: str, row: int) -> None:
    given = np.array(offsets, dtype)
    short = dtype == np.int32
    for column in (
        Made("u" if short else "U", 2, [None, given, LONG]),
        Made("z" if short else "Z", 2, [None, given, LONG]),
        lists(given, "+l" if short else "+L"),
    ):
        assert refuse(column, said).row == row


def test_offsets_whose_difference_overflows() -> None:
    refuse(Made("Z", 2, [None, np.array([0, 2**63 - 1, -(2**63)]), LONG]), "the offsets decrease")
    refuse(lists(np.array([0, 2**63 - 1]), "+L"), "9223372036854775807 rows of a child are used")


def test_offsets_beyond_the_items() -> None:
    refuse(lists(numbers(0, 4)), "4 rows of a child are used, but the child has only 3 rows")
    refuse(lists(numbers(4, 4)), "4 rows of a child are used")


def test_a_fixed_list_with_too_few_items() -> None:
    refuse(Made("+w:2", 2, [None], [int32s()]), "4 rows of a child are used, but the child has only 3 rows")


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, -1), (0, 4), (4, 0), (3, 1), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31 - 1)]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_list_views_outside_the_items(dtype: Any, start: int, length: int) -> None:
    form = "+vl" if dtype == np.int32 else "+vL"
    column = Made(form, 2, [None, np.array([0, start], dtype), np.array([3, length], dtype)], [int32s()])
    assert refuse(column, f"row 1: {length} items from item {start} are outside the 3 items").row == 1


def test_list_views_whose_sum_overflows() -> None:
    most = 2**63 - 1
    refuse(Made("+vL", 1, [None, np.array([most]), np.array([most])], [int32s()]), "are outside the 3 items")


def test_views_of_missing_lists_may_be_anything() -> None:
    made = Made("+vl", 2, [bits(0, 1), numbers(-7, 1), numbers(99, 2)], [int32s()], null_count=1)
    assert rows_of(only_chunk(made).leaves[0]) == [None, [2, 3]]


# -- views of text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["vu", "vz"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (view(-1), "the length -1 is negative"),
        (view(13, index=1), "13 bytes from byte 0 of data buffer 1 is outside the 1 data buffers"),
        (view(13, index=-1), "data buffer -1"),
        (view(13, offset=-1), "from byte -1"),
        (view(13, offset=8), "13 bytes from byte 8 of data buffer 0"),
        (view(2**31 - 1, offset=2**31 - 1), "2147483647 bytes from byte 2147483647"),
    ],
)
def test_views_outside_their_buffers(form: str, row: Any, said: str) -> None:
    assert refuse(views(view(13), row, form=form), f"row 1: .*{said}").row == 1


def test_views_without_data_buffers() -> None:
    refuse(views(view(13), sizes=()), "is outside the 0 data buffers")


def test_data_buffers_of_negative_size_and_absent_ones() -> None:
    refuse(views(view(13), sizes=(20, -1)), "a data buffer has -1 bytes")
    column = views(view(13), sizes=(20,))
    column.address(2, None)
    refuse(column, "the buffer 2 is absent")
    column = views(view(13), sizes=(20,))
    column.address(3, None)
    refuse(column, "the buffer 3 is absent")


def test_missing_views_may_be_anything() -> None:
    made = Made("vu", 2, [bits(0, 1), np.concatenate([view(-5, 9, 9), view(0)]), np.zeros(0, np.int64)], null_count=1)
    assert rows_of(only_chunk(made).leaves[0]) == [None, ""]


# -- dictionaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "dtype", "index"),
    [("i", np.int32, 2), ("i", np.int32, -1), ("C", np.uint8, 255), ("L", np.uint64, 2**63), ("l", np.int64, -(2**63))],
)
def test_indices_outside_the_dictionary(form: str, dtype: Any, index: int) -> None:
    column = coded(0, index, form=form, dtype=dtype)
    assert refuse(column, f"row 1: the index {index} is outside a dictionary of 2 entries").row == 1


def test_indices_of_missing_rows_may_be_anything() -> None:
    made = Made("i", 2, [bits(0, 1), numbers(99, 1)], (), words(), null_count=1)
    assert rows_of(only_chunk(made).leaves[0]) == [None, "c"]


def test_indices_into_an_empty_dictionary() -> None:
    refuse(coded(0, dictionary=lambda: text_of()), "the index 0 is outside a dictionary of 0 entries")


@pytest.mark.parametrize("form", ["u", "f", "b", "tss:"])
def test_indices_that_are_no_integers(form: str) -> None:
    refuse(coded(0, form=form), "the dictionary indices have the format .* not an integer")


def test_a_dictionary_in_the_type_or_in_the_array_alone() -> None:
    for part in ("schema", "array"):
        column = coded(0, 1)
        getattr(column, part).dictionary = None
        refuse(column, "either the array or its type has a dictionary, but not both")


def test_a_struct_with_a_dictionary() -> None:
    made = Made("+s", 0, [None], (), words())
    with pytest.raises(ArrowDataError, match="a struct has a dictionary"):
        only_chunk(made)


def test_text_in_a_dictionary_is_validated_with_the_number_of_its_entry() -> None:
    column = coded(0, dictionary=lambda: text_of(b"a", b"\xff"))
    assert refuse(column, "dictionary entry 1: the text .* is not valid UTF-8").row == 1


# -- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "ü".encode()[:1]])
def test_text_that_is_no_utf8(bad: bytes) -> None:
    inline = np.array([len(bad), *np.frombuffer(bad.ljust(12, b"\0"), np.int32)], np.int32)
    for column in (text_of(b"a", bad), text_of(b"a", bad, form="U", dtype=np.int64), views(view(0), inline)):
        assert refuse(column, "row 1: the text .* is not valid UTF-8. Cast the column to binary").row == 1


def test_a_character_that_continues_in_the_next_row() -> None:
    half, rest = b"\xc3", b"\xbc"
    assert refuse(text_of(half, rest), "row 0: the text").row == 0


# -- sizes -----------------------------------------------------------------------------------------------------------


def nested(levels: int, size: int = 1, length: int = 3) -> Made:
    made = int32s()
    for _ in range(levels):
        made = Made(f"+w:{size}", length, [None], [made])
    return made


def test_lists_nested_too_deep_are_refused() -> None:
    with pytest.raises(ArrowDataError, match=f"nested more than {MAX_DEPTH} levels deep"):
        only_chunk(nested(MAX_DEPTH + 1))
    assert only_chunk(nested(MAX_DEPTH)).leaves[0].column.shape == (3, *[1] * MAX_DEPTH)  # type: ignore[union-attr]


def test_rows_of_lists_whose_size_overflows_are_refused() -> None:
    with pytest.raises(ArrowDataError, match="more than any memory"):
        only_chunk(nested(3, 2**31, 0))
    with pytest.raises(ArrowDataError, match="more than any memory"):
        read_arrow(nested(3, 2**31, 0)).empty()


def test_an_address_is_never_read_for_rows_that_do_not_exist() -> None:
    for form in ("i", "b", "u", "U", "vu", "w:3", "tdD"):
        made = Made(form, 0, [None, None, None][: 3 if form in ("u", "U", "vu") else 2])
        for i in range(1, made.array.n_buffers):
            made.address(i, NOWHERE)
        assert len(only_chunk(made)) == 0


def test_rows_beyond_two_gigabytes_are_read_with_64_bit_offsets() -> None:
    nbytes = 3 << 30
    content = np.zeros(nbytes, np.uint8)  # never written, so it takes no memory
    offsets = np.array([0, nbytes - 5, nbytes])
    column = only_chunk(Made("Z", 2, [None, offsets, content])).leaves[0].column
    assert column.take(np.array([1])).elements() == [bytes(5)]  # type: ignore[union-attr]
    assert column.lengths.tolist() == [nbytes - 5, 5]  # type: ignore[union-attr]
    flags = only_chunk(Made("b", 10, [None, content], offset=nbytes * 8 - 10)).leaves[0]
    assert rows_of(flags) == [False] * 10
    items = Made("C", nbytes, [None, content])
    lists_of = only_chunk(Made("+L", 2, [None, offsets], [items])).leaves[0].column
    assert [len(row) for row in lists_of.elements()] == [nbytes - 5, 5]  # type: ignore[union-attr]
