"""``select``, ``drop``, ``rename``, ``cast`` and ``with_column``: operators on the columns of dict elements."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import ArraySpec, CastError, ColumnError, Dataset, PlanError, RaggedArray, Replace
from aiostream_data.testing.resume import resumes_everywhere

ROWS = Dataset.from_tensor_slices(
    {"n": np.arange(6), "x": np.arange(12, dtype=np.float32).reshape(6, 2), "name": list("abcdef")}
)


def same(row: Any) -> Any:
    return row


def as_objects(row: dict[str, Any]) -> dict[str, Any]:
    """Return an element that does not form columns, as its values have different types."""
    return {**row, "other": None if row["n"] % 2 else row["n"]}


OBJECTS = ROWS.map(as_objects).drop("other").map(same)
"""The same rows, with an unknown structure."""


def doubled(row: dict[str, Any]) -> Any:
    return 2 * row["n"]


def fails_at_two(row: dict[str, Any]) -> int:
    if row["n"] == 2:
        raise ValueError("two")
    return int(row["n"])


def names(dataset: Dataset[Any]) -> list[str]:
    (found,) = {tuple(row) for row in dataset}
    return list(found)


# -- select, drop, rename


@pytest.mark.parametrize("rows", [ROWS, OBJECTS], ids=["columns", "objects"])
def test_columns_are_kept_left_out_and_renamed(rows: Dataset[Any]) -> None:
    assert names(rows.select("name", "n")) == ["name", "n"]
    assert names(rows.drop("x")) == ["n", "name"]
    assert names(rows.rename({"n": "number"})) == ["number", "x", "name"]
    swapped = list(rows.rename({"n": "name", "name": "n"}))
    assert [(row["name"], row["n"]) for row in swapped[:2]] == [(0, "a"), (1, "b")]


def test_batches_have_columns_too() -> None:
    (batch,) = ROWS.batch(6).rename({"n": "number"}).select("number", "name")
    assert batch["number"].tolist() == list(range(6))
    assert batch["name"].tolist() == list("abcdef")


def test_a_nested_column_is_kept_whole() -> None:
    nested = Dataset.from_tensor_slices({"box": {"x": [1, 2], "y": [3, 4]}, "n": [5, 6]})
    assert list(nested.select("box")) == [{"box": {"x": 1, "y": 3}}, {"box": {"x": 2, "y": 4}}]
    assert next(iter(nested.rename({"box": "b"}).drop("n"))) == {"b": {"x": 1, "y": 3}}


def test_untouched_columns_are_not_copied() -> None:
    data = np.arange(8.0).reshape(4, 2)
    rows = Dataset.from_tensor_slices({"x": data, "n": np.arange(4)})
    for row in rows.rename({"x": "y"}).with_column("m", doubled).drop("n"):
        assert np.shares_memory(row["y"], data)


def test_missing_values_stay_missing() -> None:
    rows = Dataset.from_tensor_slices({"n": [1, 2], "name": ["a", None]})
    assert list(rows.select("name").rename({"name": "who"})) == [{"who": "a"}, {"who": None}]


def test_the_plan_knows_structure_length_and_calls() -> None:
    changed = ROWS.drop("x").rename({"n": "m"}).cast({"m": "int16"}).with_column("k", same)
    assert changed.cardinality() == 6
    assert changed.element_spec == {
        "m": ArraySpec((), np.dtype(np.int16)),
        "name": ArraySpec((), np.dtype(object)),
        "k": ArraySpec(None, None),
    }
    told = changed.explain()
    for call in ("drop('x')", "rename({'n': 'm'})", "cast({'m': int16})", "with_column('k', same"):
        assert call in told


# -- cast


@pytest.mark.parametrize("rows", [ROWS, OBJECTS], ids=["columns", "objects"])
def test_columns_get_another_dtype(rows: Dataset[Any]) -> None:
    first = next(iter(rows.cast({"n": "int16", "x": np.float64})))
    assert type(first["n"]) is np.int16
    assert first["x"].dtype == np.float64
    as_before = next(iter(rows.cast({"n": "int16"}).cast({"n": "int64"})))
    assert type(as_before["n"]) is int


def test_all_leaves_of_a_nested_column_and_ragged_arrays_are_converted() -> None:
    ragged = RaggedArray(np.arange(6), np.array([0, 1, 4, 6]))
    rows = Dataset.from_tensor_slices({"box": {"x": [1, 2, 3], "y": [3.0, 4.0, 5.0]}, "tokens": ragged})
    cast = rows.cast({"box": "float32", "tokens": "int32"})
    row = list(cast)[1]
    assert type(row["box"]["x"]) is type(row["box"]["y"]) is np.float32
    assert (row["tokens"].dtype, row["tokens"].tolist()) == (np.int32, [1, 2, 3])
    (batch,) = rows.batch(3).cast({"tokens": "uint8"}, casting="unsafe")
    assert batch["tokens"].values.dtype == np.uint8
    assert batch["tokens"].to_list() == [[0], [1, 2, 3], [4, 5]]


def maybe(number: int) -> dict[str, Any]:
    return {"n": number if number % 2 else None}


def test_missing_numbers_stay_missing_in_cast() -> None:
    assert [row["n"] for row in Dataset.range(4).map(maybe).cast({"n": "float32"})] == [None, 1.0, None, 3.0]


def large(number: int) -> dict[str, Any]:
    return {"n": 50 * number, "x": 10.0 ** (20 * number)}


@pytest.mark.parametrize(
    ("columns", "message", "rows"),
    [({"n": "int8"}, "value 150 does not fit into int8", 3), ({"x": "float32"}, r"value 1e\+40 does not fit", 2)],
)
def test_a_value_that_does_not_fit_raises_after_the_rows_before(
    columns: dict[str, str], message: str, rows: int
) -> None:
    with Dataset.range(5).map(large).cast(columns).open() as loader:
        assert len([next(loader) for _ in range(rows)]) == rows
        with pytest.raises(CastError, match=message) as caught:
            next(loader)
    assert caught.value.column in columns
    assert "record: range record" in "\n".join(caught.value.__notes__)


def test_unsafe_casts_do_what_numpy_does() -> None:
    wrapped = list(Dataset.range(5).map(large).cast({"n": "int8", "x": "float32"}, casting="unsafe"))
    assert [int(row["n"]) for row in wrapped] == [0, 50, 100, -106, -56]
    assert wrapped[2]["x"] == np.inf


def test_conversions_of_another_kind_are_refused() -> None:
    with pytest.raises(ColumnError, match="casting='same_kind' does not allow float32 to int64"):
        ROWS.cast({"x": "int64"})
    with pytest.raises(ColumnError, match="casting='safe' does not allow int64 to int32"):
        ROWS.cast({"n": "int32"}, casting="safe")
    with pytest.raises(ColumnError, match="values are not numbers"):
        ROWS.cast({"name": "int64"})
    with pytest.raises(ColumnError, match="column 'name': its values are not numbers"):
        list(OBJECTS.cast({"name": "int64"}))
    with pytest.raises(ColumnError, match="does not allow float32 to int64"):
        list(OBJECTS.cast({"x": "int64"}))


# -- with_column


@pytest.mark.parametrize("rows", [ROWS, OBJECTS, ROWS.batch(2)], ids=["columns", "objects", "batches"])
@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_a_function_makes_a_column(rows: Dataset[Any], executor: Any) -> None:
    made = rows.with_column("twice", doubled, executor=executor)
    assert names(made) == ["n", "x", "name", "twice"]
    assert np.hstack([row["twice"] for row in made]).tolist() == [0, 2, 4, 6, 8, 10]


def test_a_replaced_column_keeps_its_place() -> None:
    assert names(ROWS.with_column("x", doubled)) == ["n", "x", "name"]


def box(row: dict[str, Any]) -> dict[str, Any]:
    return {"left": row["n"], "tags": [1, 2], "text": "t" * int(row["n"])}


def test_a_column_can_be_anything() -> None:
    assert list(ROWS.with_column("box", box))[2]["box"] == {"left": 2, "tags": [1, 2], "text": "tt"}
    assert [row["o"] for row in ROWS.with_column("o", lambda row: None if row["n"] else row["n"])] == [0, *[None] * 5]


def drawn(row: dict[str, Any], rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))


def test_a_function_can_draw_random_numbers() -> None:
    rows = ROWS.with_column("draw", drawn, seed=3)
    first = [row["draw"] for row in rows.open(seed=1)]
    assert len(set(first)) == 6
    assert first == [row["draw"] for row in rows.open(seed=1, debug=True)]


def test_rows_before_a_failure_are_delivered() -> None:
    with ROWS.with_column("m", fails_at_two).open() as loader:
        assert [next(loader)["m"] for _ in range(2)] == [0, 1]
        with pytest.raises(ValueError, match="two") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: with_column, written at" in notes
    assert "fails_at_two" in notes


def test_policies_skip_rows_or_replace_the_column() -> None:
    assert [row["n"] for row in ROWS.with_column("m", fails_at_two, on_error="skip")] == [0, 1, 3, 4, 5]
    replaced = list(ROWS.with_column("m", fails_at_two, on_error=Replace(-1)))
    assert [row["m"] for row in replaced] == [0, 1, -1, 3, 4, 5]
    assert replaced[2]["name"] == "c"


# -- errors


def dict_or_number(number: int) -> Any:
    return {"n": number} if number < 3 else number


CALLS: dict[str, Callable[[Dataset[Any]], Dataset[Any]]] = {
    "select": lambda rows: rows.select("n", "absent"),
    "drop": lambda rows: rows.drop("absent"),
    "rename": lambda rows: rows.rename({"absent": "present"}),
    "cast": lambda rows: rows.cast({"absent": "int64"}),
}


@pytest.mark.parametrize("operator", CALLS)
def test_an_unknown_column_is_named_at_the_call_or_at_the_first_element(operator: str) -> None:
    message = rf"cannot run {operator}\(\) on column 'absent': .* The columns are 'n', 'x', 'name'\."
    with pytest.raises(ColumnError, match=message):
        CALLS[operator](ROWS)
    with pytest.raises(ColumnError, match=message) as caught:
        list(CALLS[operator](OBJECTS))
    assert (caught.value.operator, caught.value.column) == (operator, "absent")
    assert caught.value.present == ("n", "x", "name")
    assert "record: from_tensor_slices record 0" in caught.value.__notes__
    assert pickle.loads(pickle.dumps(caught.value)).present == ("n", "x", "name")


@pytest.mark.parametrize(
    "call",
    [lambda rows: rows.select("n"), lambda rows: rows.with_column("m", doubled), lambda rows: rows.cast({"n": int})],
)
def test_elements_must_be_dicts(call: Callable[[Dataset[Any]], Dataset[Any]]) -> None:
    with pytest.raises(ColumnError, match="needs elements that are dicts"):
        call(Dataset.range(3))
    with call(Dataset.range(5).map(dict_or_number)).open() as loader:
        assert [next(loader)["n"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ColumnError, match="needs elements that are dicts, got") as caught:
            next(loader)
    assert "record: range record 3" in caught.value.__notes__


async def later(row: Any) -> Any:
    return row


def test_bad_arguments_are_refused_at_the_call() -> None:
    bad: list[Callable[[], Any]] = [
        lambda: ROWS.select(),
        lambda: ROWS.select("n", "n"),
        lambda: ROWS.select(["n"]),  # type: ignore[arg-type]
        lambda: ROWS.drop("n", "x", "name"),
        lambda: ROWS.rename({"n": "x"}),
        lambda: ROWS.rename({"n": "m", "x": "m"}),
        lambda: ROWS.rename([("n", "m")]),  # type: ignore[arg-type]
        lambda: ROWS.cast({"n": "text"}),
        lambda: ROWS.cast({"n": object}),
        lambda: ROWS.cast({"n": "int32"}, casting="equiv"),  # type: ignore[arg-type]
        lambda: ROWS.with_column("m", 3),  # type: ignore[arg-type]
        lambda: ROWS.with_column(3, doubled),  # type: ignore[arg-type]
        lambda: ROWS.with_column("m", later),
    ]
    for call in bad:
        with pytest.raises(PlanError):
            call()


# -- resuming, ranks, other processes


@pytest.mark.parametrize(
    "dataset",
    [
        ROWS.select("n"),
        ROWS.shuffle(3, seed=1).drop("x").repeat(2),
        OBJECTS.rename({"n": "m"}).shuffle(4, seed=2),
        ROWS.cast({"n": "int8"}).batch(4),
        ROWS.batch(4).cast({"n": "int8"}).select("n").unbatch().shuffle(2, seed=1),
        ROWS.with_column("m", doubled).shuffle(4, seed=1),
        ROWS.with_column("m", fails_at_two, on_error="skip").batch(2),
    ],
    ids=["select", "drop", "rename", "cast", "of batches", "with_column", "skipped"],
)
def test_column_operators_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_ranks_share_rows_before_the_column_operators() -> None:
    changed = ROWS.select("n").with_column("m", doubled).batch(2)
    shares = [[row["m"].tolist() for row in changed.open(rank=rank, world_size=3)] for rank in range(3)]
    assert shares == [[[0, 6]], [[2, 8]], [[4, 10]]]
