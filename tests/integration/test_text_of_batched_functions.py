"""Bytes and text that functions of ``map(batched=True)`` return, and the batches of such rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import BatchShapeError, BytesArray, Dataset, PlanError, RaggedArray, TextArray

ROWS = 3000
WITH_NULS = [b"\0" * 3, b"a\0", b"", b"\0a"]
FORMS = ("objects", "columns", "string_dtype", "ragged", "padded")


def value_of(row: int) -> bytes:
    return WITH_NULS[row % 4] + b"x" * (row % 7)


def text_of(row: int) -> str:
    return value_of(row).decode() + "\u00e4" * (row % 3)


@pytest.mark.parametrize("value_of_row", [value_of, text_of])
@pytest.mark.parametrize("container", [list, tuple])
def test_lists_and_tuples_of_text_keep_nuls_at_the_end(
    container: Callable[[Any], Any], value_of_row: Callable[[int], Any]
) -> None:
    mapped = Dataset.range(ROWS).map(lambda rows: container(value_of_row(int(row)) for row in rows), batched=True)
    wanted = [value_of_row(row) for row in range(ROWS)]
    found = list(mapped)
    assert found == wanted
    assert set(map(type, found)) == {type(wanted[0])}


def test_text_in_a_dict_and_in_a_tuple_keeps_nuls() -> None:
    def function(rows: Any) -> Any:
        texts = [text_of(int(row)) for row in rows]
        return {"text": texts, "pair": (tuple(texts), rows)}

    found = list(Dataset.range(50).map(function, batched=True))
    assert found == [{"text": text_of(row), "pair": (text_of(row), row)} for row in range(50)]


def test_nested_lists_of_text_become_object_arrays() -> None:
    found: list[Any] = list(
        Dataset.range(200).map(lambda rows: [["a\0", "b" * int(row)] for row in rows], batched=True)
    )
    assert {row.dtype for row in found} == {np.dtype(object)}
    assert [row.tolist() for row in found] == [["a\0", "b" * row] for row in range(200)]


def test_nested_lists_of_different_lengths_are_rejected() -> None:
    rows = Dataset.range(4).map(lambda rows: [["a"] for _ in rows[:1]] + [["a", "b"] for _ in rows[:1]], batched=True)
    with pytest.raises(PlanError, match=r"element is a list, .*: its parts differ in length\. Pad them in map\(\)"):
        list(rows)


def test_text_that_utf_8_cannot_represent_stays_text() -> None:
    found: list[Any] = list(Dataset.range(5).map(lambda rows: ["\udc80"] * len(rows), batched=True))
    assert found == ["\udc80"] * 5


def test_missing_text_stays_missing() -> None:
    rows: Dataset[Any] = Dataset.range(40).map(
        lambda rows: [f"{row}\0" if row % 3 else None for row in rows], batched=True
    )
    wanted = [f"{row}\0" if row % 3 else None for row in range(40)]
    assert list(rows) == wanted
    assert [text for batch in rows.batch(7, strings="columns") for text in batch] == wanted


def some_missing(rows: Any) -> list[str | None]:
    return [None if row % 5 == 3 else text_of(int(row)) for row in rows]


def as_columns(rows: Any) -> Any:
    return {"n": rows, "text": TextArray.from_list(some_missing(rows))}


def as_columns_at_times(rows: Any) -> Any:
    return as_columns(rows) if rows[0] % 3 else {"n": rows, "text": some_missing(rows)}


@pytest.mark.parametrize("function", [as_columns, as_columns_at_times])
@pytest.mark.parametrize("strings", ["objects", "columns"])
def test_columns_of_a_function_are_the_same_for_any_number_of_rows_per_call(function: Any, strings: Any) -> None:
    wanted = some_missing(range(300))
    mapped: Dataset[Any] = Dataset.range(300).map(function, batched=True)
    hashes = []
    for debug in (False, True):
        with mapped.open(debug=debug) as rows, mapped.shuffle(50, seed=1).open(debug=debug) as shuffled:
            assert [row["text"] for row in rows] == wanted
            assert {row["n"]: row["text"] for row in shuffled} == dict(enumerate(wanted))
            hashes += [rows.stream_hash, shuffled.stream_hash]
        with mapped.batch(70, strings=strings).open(debug=debug) as loader:
            batches = list(loader)
            hashes.append(loader.stream_hash)
        assert {type(batch["text"]) for batch in batches} == {TextArray if strings == "columns" else np.ndarray}
        assert [text for batch in batches for text in batch["text"]] == wanted
    assert hashes[:3] == hashes[3:]


def test_too_few_texts_are_an_error() -> None:
    rows = Dataset.range(4).map(lambda rows: ["a", *("b" for _ in rows)], batched=True)
    with pytest.raises(PlanError, match=r"as many rows as it received \(1\), but element has shape \(2,\)"):
        list(rows)


def test_one_long_value_does_not_widen_the_others() -> None:
    nbytes = 5 << 20
    found = Dataset.range(ROWS).map(lambda rows: [b"x" * (nbytes if row == 2500 else 3) for row in rows], batched=True)
    assert sum(map(len, found)) == nbytes + 3 * (ROWS - 1)


def texts(rows: Any) -> list[str]:
    return [str(row) for row in rows]


SOURCES: dict[str, Dataset[Any]] = {
    "list": Dataset.range(ROWS).map(texts, batched=True),
    "columns": Dataset.range(ROWS).map(lambda rows: TextArray.from_list(texts(rows)), batched=True),
    "array": Dataset.range(ROWS).map(lambda rows: np.array(texts(rows)), batched=True),
    "other byte order": Dataset.range(ROWS).map(lambda rows: np.array(texts(rows), ">U6"), batched=True),
    "buffered": Dataset.range(ROWS).map(lambda rows: np.array(texts(rows)), batched=True).shuffle(1),
    "scalars": Dataset.range(ROWS).map(lambda row: np.str_(row)),
    "arrays without axes": Dataset.range(ROWS).map(lambda row: np.array(str(row))),
    "unbatched": Dataset.from_iterable([np.array(texts(range(n, n + 2))) for n in range(0, ROWS, 2)]).unbatch(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_all_batches_of_text_have_one_form(source: Dataset[Any], form: Any) -> None:
    wanted = list(Dataset.from_list(texts(range(ROWS))).batch(70, strings=form))
    found = list(source.batch(70, strings=form))
    assert [type(batch) for batch in found] == [type(batch) for batch in wanted]
    for batch, other in zip(found, wanted, strict=True):
        assert getattr(batch, "dtype", None) == getattr(other, "dtype", None)
        assert np.array_equal(_plain(batch), _plain(other))


def _plain(batch: Any) -> Any:
    return batch.to_padded() if isinstance(batch, RaggedArray) else np.array(batch)


@pytest.mark.parametrize("name", ["list", "array", "other byte order", "arrays without axes", "unbatched"])
def test_batches_of_objects_contain_python_text(name: str) -> None:
    assert {type(text) for batch in SOURCES[name].batch(70) for text in batch} == {str}


def test_fixed_width_bytes_become_columns() -> None:
    def function(rows: Any) -> Any:
        return {"n": rows, "data": np.array([b"\0x" * int(row % 5) for row in rows])}

    for batch in Dataset.range(ROWS).map(function, batched=True).batch(70, strings="columns"):
        assert isinstance(batch["data"], BytesArray)
        assert batch["data"].to_list() == [b"\0x" * (row % 5) for row in batch["n"].tolist()]


def test_fixed_width_rows_stay_numpy_text_without_a_batch() -> None:
    rows: Dataset[Any] = Dataset.range(50).map(lambda rows: np.array(texts(rows)), batched=True)
    assert {type(row) for row in rows} == {np.str_}


def test_nested_lists_in_memory_keep_nuls_at_the_end() -> None:
    rows = list(Dataset.from_tensor_slices([[b"a\0", b"b"], [b"c", b"d\0"]]))
    assert [row.tolist() for row in rows] == [[b"a\0", b"b"], [b"c", b"d\0"]]
    deep = list(Dataset.from_tensor_slices({"x": [[["a\0"], ["b"]]]}))
    assert deep[0]["x"].tolist() == [["a\0"], ["b"]]


@pytest.mark.parametrize("fill", [b"\0\0", b"p\0"])
def test_padding_keeps_nuls_at_the_end(fill: bytes) -> None:
    rows = [[b"a\0", b"b"], [b"c"]]
    (batch,) = Dataset.from_iterable(rows).padded_batch(2, padding_values=fill)
    assert batch.tolist() == [[b"a\0", b"b"], [b"c", fill]]
    nested = [np.array([[b"a"]], object), np.array([[b"b", b"c"]], object)]
    (batch,) = Dataset.from_iterable(nested).padded_batch(2, padding_values=fill)
    assert batch.tolist() == [[[b"a", fill]], [[b"b", b"c"]]]


@pytest.mark.parametrize("kind", ["<U", ">U", "S"])
@pytest.mark.parametrize("shape", [(2,), (1, 3), (9_000,)])
@pytest.mark.parametrize("batch", ["batch", "batches of batches", "padded_batch", "batched map", "shuffle"])
def test_arrays_of_text_of_different_widths_are_joined_with_the_largest_width(
    kind: str, shape: tuple[int, ...], batch: str
) -> None:
    def wide(rows: Any) -> Any:
        width = 1 + 4 * (int(rows[0]) // 4 % 2)
        return {"n": rows, "t": np.full((len(rows), *shape), "abcde"[:width], f"{kind}{width}")}

    chunks: Dataset[Any] = Dataset.range(24).batch(4).map(wide).unbatch()
    joined: dict[str, Dataset[Any]] = {
        "batch": chunks.batch(9),
        "batches of batches": chunks.batch(4).batch(6).unbatch().batch(2).unbatch(),
        "padded_batch": chunks.padded_batch(9),
        "batched map": chunks.map(lambda rows: rows, batched=True).batch(9),
        "shuffle": chunks.shuffle(24, seed=1).batch(24),
    }
    found = [(int(n), text) for each in joined[batch] for n, text in zip(each["n"], each["t"], strict=True)]
    assert sorted(n for n, _ in found) == list(range(24))
    for n, text in found:
        word = "abcde"[: 1 + 4 * (n // 4 % 2)]
        assert set(text.ravel().tolist()) == {word.encode() if kind == "S" else word}
        assert text.shape == shape


def test_arrays_of_bytes_and_of_text_are_not_joined() -> None:
    rows = Dataset.range(2).map(lambda row: np.array([["a"], [b"b"]][row]))
    with pytest.raises(BatchShapeError, match=r"shape \(1,\) of <U1 in range record 0 but shape \(1,\) of \|S1"):
        list(rows.batch(2))
