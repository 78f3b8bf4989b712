"""``spec=``, ``element_spec`` and ``infer_spec``: what is known of the results of user functions."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data import ArraySpec, CardinalityError, Dataset, PlanError, RaggedArray, SignatureError, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere

INT = ArraySpec((), np.dtype(np.int64))
FLOATS = ArraySpec((None,), np.dtype(np.float32))
TEXT = ArraySpec((), np.dtype(object))
TEN = Dataset.range(10)


def plus_one(number: Any) -> Any:
    return int(number) + 1


async def plus_one_later(number: Any) -> Any:
    return int(number) + 1


def row(number: Any) -> dict[str, Any]:
    return {"x": np.zeros(int(number) % 3, np.float32), "name": f"{number}"}


def twice(number: Any) -> list[int]:
    return [int(number), int(number)]


def totals(total: int, number: Any) -> tuple[int, int]:
    return total + int(number), total


class Kept:
    """Aggregator that emits each element."""

    def add(self, number: Any) -> list[int]:
        return [int(number)]

    def flush(self) -> list[int]:
        return []


def wrong_at(place: int) -> Any:
    def function(number: Any) -> Any:
        return 0.5 if number == place else int(number)

    return function


DECLARED = {
    "map": TEN.map(plus_one, spec=INT),
    "coroutine": TEN.map(plus_one_later, spec=INT),
    "batched": TEN.map(lambda numbers: numbers + 1, batched=True, spec=INT),
    "process": TEN.map(plus_one, executor="process", concurrency=1, spec=INT),
    "flat_map": TEN.flat_map(twice, spec=INT),
    "interleave": TEN.interleave(twice, spec=INT),
    "scan": TEN.scan(totals, 0, spec=INT),
    "aggregate": TEN.aggregate(Kept, spec=INT),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_spec_is_known_and_changes_no_element(name: str) -> None:
    dataset = DECLARED[name]
    assert dataset.element_spec == INT
    assert all(type(element) in (int, np.int64) for element in dataset)
    assert dataset.batch(2).element_spec == ArraySpec((None,), np.dtype(np.int64))
    assert dataset.concatenate(TEN).element_spec == INT


def test_a_declared_spec_changes_neither_fingerprint_nor_draws() -> None:
    def draws(number: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 40))

    plain, declared = (TEN.map(plus_one, spec=spec).map(draws) for spec in (None, INT))
    assert plain.fingerprint() == declared.fingerprint()
    with plain.open(seed=5) as first, declared.open(seed=5) as second:
        assert list(first) == list(second)
        assert first.stream_hash == second.stream_hash


def test_a_state_fits_after_a_spec_is_declared() -> None:
    with TEN.map(plus_one).open(seed=1) as loader:
        given = [next(loader) for _ in range(4)]
        state = loader.state_dict()
    with TEN.map(plus_one, spec=INT).open(state) as loader:
        assert given + list(loader) == list(range(1, 11))


@pytest.mark.parametrize("place", [0, 5, 9])
@pytest.mark.parametrize("debug", [False, True])
def test_elements_before_the_first_wrong_one_arrive(place: int, debug: bool) -> None:
    found: list[Any] = []
    with TEN.map(wrong_at(place), spec=INT).open(debug=debug) as loader, pytest.raises(SignatureError) as caught:
        found.extend(loader)
    assert found == list(range(place))
    assert "an element of map() does not match spec=: element must be int64" in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert f"record: range record {place}" in notes
    assert "made by: wrong_at" in notes
    assert "test_declared_specs.py" in notes


@pytest.mark.parametrize(
    ("made", "spec", "text"),
    [
        (None, INT, "got object of shape ()"),
        ("a", INT, "got str"),
        (1, TEXT, "got int64"),
        (1, {"x": INT}, "expected structure {x: *}, found *"),
        ({"x": 1, "y": 2}, {"x": INT}, "found {x: *, y: *}"),
        ((1, 2), (INT, INT, INT), "found (*, *)"),
        (np.zeros(3, np.float64), FLOATS, "got float64 of shape (3,)"),
        (np.zeros((3, 1), np.float32), FLOATS, "got float32 of shape (3, 1)"),
        (np.zeros(3), ArraySpec((4,), None), "any dtype of shape (4,), got float64 of shape (3,)"),
        (
            RaggedArray(np.zeros(3), np.array([0, 1, 3])),
            ArraySpec((2, 3), np.dtype(np.float64)),
            "a RaggedArray of float64",
        ),
        ([[1], [1, 2]], INT, "list, which cannot become"),
    ],
    ids=str,
)
def test_a_wrong_result_is_described(made: Any, spec: Any, text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        list(TEN.map(lambda number: made, spec=spec))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("made", "spec"),
    [
        (None, ArraySpec(None, None)),
        (b"a", TEXT),
        ([1, 2], ArraySpec((2,), np.dtype(np.int64))),
        ({"y": 2, "x": 1}, {"x": INT, "y": INT}),
        (np.zeros(3, np.float32), FLOATS),
        (RaggedArray(np.zeros(3), np.array([0, 1, 3])), ArraySpec((None, None), np.dtype(np.float64), ragged=True)),
        ((), ()),
    ],
    ids=str,
)
def test_a_right_result_passes_unchanged(made: Any, spec: Any) -> None:
    assert str(next(iter(TEN.map(lambda number: made, spec=spec)))) == str(made)


def test_rows_of_different_lengths_are_checked_one_by_one() -> None:
    spec = {"x": ArraySpec((1,), np.dtype(np.float32)), "name": TEXT}
    with pytest.raises(SignatureError, match="x must be float32"):
        list(TEN.map(row, spec=spec))
    assert len(list(TEN.map(row, spec={"name": TEXT, "x": FLOATS}))) == 10


def test_an_error_policy_does_not_apply_to_the_spec() -> None:
    with pytest.raises(SignatureError):
        list(TEN.map(wrong_at(3), spec=INT, on_error="skip").ignore_errors())


@pytest.mark.parametrize("spec", [5, [INT], {"x": np.int64}, np.float32, (INT, None)], ids=str)
def test_a_spec_consists_of_array_specs(spec: Any) -> None:
    with pytest.raises(PlanError, match="spec must be a structure of ArraySpec"):
        TEN.map(plus_one, spec=spec)
    with pytest.raises(PlanError, match="spec must be a structure of ArraySpec"):
        TEN.flat_map(twice, spec=spec)


def test_later_operators_use_the_spec() -> None:
    rows = TEN.map(row, spec={"x": FLOATS, "name": TEXT})
    assert rows.select("x").element_spec == {"x": FLOATS}
    with pytest.raises(PlanError, match="no such column"):
        rows.select("y")
    assert rows.padded_batch(2).element_spec["x"].shape == (None, None)
    sized = TEN.map(lambda number: np.zeros(8, np.float32), spec=ArraySpec((8,), np.dtype(np.float32))).batch(4)
    assert "check_spec(float32[8])" in sized.explain()


def test_the_spec_is_checked_on_each_rank() -> None:
    dataset = TEN.map(wrong_at(7), spec=INT)
    assert list(dataset.open(rank=0, world_size=2)) == [0, 2, 4, 6, 8]
    with pytest.raises(SignatureError):
        list(dataset.open(rank=1, world_size=2))


def test_a_dataset_with_a_spec_runs_in_a_subprocess() -> None:
    dataset = Dataset.range(6).map(plus_one, spec=INT).in_subprocess(2)
    assert list(pickle.loads(pickle.dumps(dataset))) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(8).map(plus_one, spec=INT).shuffle(3, seed=1).batch(2),
        Dataset.range(5).map(row, spec={"x": FLOATS, "name": TEXT}).repeat(2),
        Dataset.range(6).flat_map(twice, spec=INT),
        Dataset.range(6).aggregate(Kept, spec=INT).batch(4),
    ],
    ids=["shuffled", "rows", "flat_map", "aggregate"],
)
def test_a_checked_dataset_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


# -- infer_spec


def test_the_spec_of_the_first_element_can_be_declared() -> None:
    rows = TEN.map(lambda number: {"x": np.zeros(3, np.float32), "pair": (int(number), "a")})
    spec = rows.infer_spec()
    assert spec == {"x": ArraySpec((3,), np.dtype(np.float32)), "pair": (INT, TEXT)}
    assert len(list(rows.map(lambda row: row, spec=spec))) == 10
    assert asyncio.run(rows.ainfer_spec()) == spec


def test_what_the_plan_knows_precedes_the_first_element() -> None:
    assert TEN.batch(4).infer_spec() == ArraySpec((None,), np.dtype(np.int64))
    assert TEN.map(plus_one).batch(4).infer_spec() == ArraySpec((4,), np.dtype(np.int64))
    ragged = TEN.map(lambda number: list(range(int(number)))).ragged_batch(2).infer_spec()
    assert ragged == ArraySpec((2, None), np.dtype(np.int64), ragged=True)


def test_infer_spec_is_no_iteration() -> None:
    dataset = TEN.shuffle(10)
    dataset.infer_spec()
    fresh = dataset.map(plus_one)
    assert dataset._next_epoch() == 0
    assert fresh.infer_spec(seed=3, memory_limit="64MB") == INT


def test_all_ranks_infer_the_same_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Dataset.range(1).map(plus_one).infer_spec() == INT


def test_infer_spec_needs_an_element_that_can_be_read_again() -> None:
    with pytest.raises(CardinalityError, match="dataset is empty"):
        Dataset.range(0).infer_spec()
    with pytest.raises(CardinalityError, match="dataset is empty"):
        asyncio.run(TEN.filter(lambda number: False).ainfer_spec())
    with pytest.raises(StageBuildError, match="infer_spec"):
        Dataset.from_iterable(iter([1])).infer_spec()
    with pytest.raises(PlanError, match="to_device"):
        TEN.batch(2).to_device("cpu").infer_spec()


def test_an_error_in_the_first_element_is_raised() -> None:
    def fails(number: Any) -> Iterator[int]:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        TEN.map(fails).infer_spec()
