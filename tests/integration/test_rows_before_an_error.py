"""Every element before the failing one is delivered, in order, whatever fails and wherever it runs."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import BatchShapeError, CorruptRecordError, ErrorBudgetError, StorageError

BAD = 1000
"""Number of the element on which something fails."""

NUMBERS = Dataset.range(2 * BAD)


class Refused(Exception):
    """What the functions here fail with."""


def refuse(number: int) -> int:
    if number == BAD:
        raise Refused(number)
    return number


async def refuse_later(number: int) -> int:
    await asyncio.sleep(0)
    return refuse(number)


def refuse_row(number: int) -> list[int]:
    return [refuse(number)]


def refuse_element(element: dict[str, Any]) -> int:
    return refuse(int(element["n"]))


def refuse_batch(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if BAD in numbers:
        raise Refused(BAD)
    return numbers


def is_no_refusal(number: int) -> bool:
    return refuse(number) >= 0


async def is_no_refusal_later(number: int) -> bool:
    return is_no_refusal(number)


def generated() -> Iterator[int]:
    for number in range(2 * BAD):
        yield refuse(number)


async def generated_later() -> AsyncIterator[int]:
    for number in range(2 * BAD):
        yield refuse(number)


def of_own_shape(number: int) -> np.ndarray[Any, Any]:
    return np.full(2 if number == BAD else 3, number)


def unstackable(number: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"a": np.arange(2), "b": np.arange(3 if number == BAD else 2)}


def a_coroutine_once(number: int) -> Any:
    return refuse_later(number) if number == BAD else number


FAILING: dict[str, Dataset[Any]] = {
    "map": NUMBERS.map(refuse),
    "map of dicts": NUMBERS.map(lambda n: {"n": n}).map(refuse_element),
    "map inline": NUMBERS.map(refuse, executor="inline"),
    "map on three threads": NUMBERS.map(refuse, executor="thread", concurrency=3),
    "map in a process": NUMBERS.map(refuse, executor="process", concurrency=2),
    "map with a time limit": NUMBERS.map(refuse, timeout=30),
    "map between filters": NUMBERS.filter(lambda n: n >= 0).map(refuse).filter(lambda n: n >= 0),
    "two maps": NUMBERS.map(refuse).map(lambda n: refuse(n - 10) + 10),
    "coroutine": NUMBERS.map(refuse_later),
    "batched map": NUMBERS.map(refuse_batch, batched=True),
    "filter": NUMBERS.filter(is_no_refusal),
    "coroutine filter": NUMBERS.filter(is_no_refusal_later),
    "flat_map": NUMBERS.flat_map(refuse_row),
    "interleave": NUMBERS.interleave(refuse_row, cycle_length=7),
    "inside flat_map": Dataset.range(3).flat_map(lambda n: NUMBERS.map(refuse)),
    "generator": Dataset.from_generator(generated),
    "async generator": Dataset.from_generator(generated_later),
    "iterable": Dataset.from_iterable(map(refuse, range(2 * BAD))),
    "a value that is none yet": NUMBERS.map(a_coroutine_once),
    "prefetch": NUMBERS.map(refuse).prefetch(3),
    "cache": NUMBERS.map(refuse).cache(),
    "zip": Dataset.zip(NUMBERS, NUMBERS.map(refuse_later)),
    "concatenate": Dataset.range(7).concatenate(NUMBERS.skip(7).map(refuse)),
    "repeat": NUMBERS.map(refuse).repeat(2),
    "take": NUMBERS.map(refuse).take(BAD + 5),
    "unbatched": NUMBERS.batch(7).unbatch().map(refuse),
    "subprocess": NUMBERS.map(refuse).in_subprocess(1),
    "subprocesses": NUMBERS.map(refuse).in_subprocess(2),
    "rows that do not unbatch": NUMBERS.map(unstackable).unbatch().map(lambda row: row["a"]).window(2, 2),
    "too many failures": NUMBERS.map(refuse, on_error=asd.Skip(max_count=0)),
}
"""Data sets of which element 1,000 fails, one at a time."""

SLOW = {"map in a process", "subprocess", "subprocesses"}
"""Data sets that start processes, about a second each."""


def received(dataset: Dataset[Any], **options: Any) -> tuple[list[Any], BaseException | None, Any]:
    """Return the elements, what the data set failed with, and the state then."""
    elements: list[Any] = []
    with leaves_nothing(), dataset.open(**options) as loader:
        try:
            elements.extend(loader)
        except Exception as error:
            return elements, error, loader.state_dict()
        return elements, None, loader.state_dict()


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_at_element_1000_gives_15_batches_of_64_before(name: str) -> None:
    for _ in range(1 if name in SLOW or "iterable" in name else 5):
        batches, error, _ = received(FAILING[name].batch(64))
        assert (len(batches), error is None) == (15, False)


@pytest.mark.parametrize("name", sorted(set(FAILING) - {"iterable", "subprocesses", "take", "too many failures"}))
def test_a_state_taken_behind_the_failure_leads_to_it_again(name: str) -> None:
    elements, error, state = received(FAILING[name])
    assert len(elements) == BAD
    again, same, _ = received(FAILING[name], state=state)
    assert (again, type(same)) == ([], type(error))


def test_ten_elements_of_a_hop_before_the_failing_one_come_from_a_coroutine_that_is_unordered_too() -> None:
    elements, error, state = received(NUMBERS.map(refuse_later, ordered=False))
    assert set(range(BAD)) <= set(elements)
    assert isinstance(error, Refused)
    rest, _, _ = received(NUMBERS.map(refuse_later, ordered=False), state=state)
    assert not set(rest) & set(elements)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_rows_taken_in_before_the_failing_one_come_without_an_order_too(executor: Any) -> None:
    elements, error, _ = received(NUMBERS.map(refuse, executor=executor, concurrency=2, ordered=False))
    assert set(range(BAD)) <= set(elements)
    assert isinstance(error, Refused)


def test_batches_before_one_that_does_not_stack_come_first() -> None:
    for _ in range(5):
        batches, error, _ = received(NUMBERS.map(of_own_shape).batch(64))
        assert (len(batches), type(error)) == (15, BatchShapeError)


@pytest.mark.parametrize(
    "grouped",
    [
        lambda rows: rows.window(64, 64),
        lambda rows: rows.shuffle(1).batch(64),
        lambda rows: rows.bucket_by_sequence_length(lambda row: 1, [5], [64, 64], no_padding=True),
    ],
    ids=["window", "shuffle", "buckets"],
)
def test_elements_of_several_rows_before_one_that_cannot_be_made_come_first(
    grouped: Callable[[Dataset[Any]], Dataset[Any]],
) -> None:
    elements, error, _ = received(grouped(NUMBERS.map(of_own_shape)))
    assert (len(elements), error is None) == (15, False)


def test_buckets_before_a_row_whose_length_cannot_be_told_come_first() -> None:
    plan = NUMBERS.bucket_by_sequence_length(refuse, [1 << 20], [64, 64], no_padding=True)
    elements, error, _ = received(plan)
    assert (len(elements), type(error)) == (15, Refused)


def test_packed_rows_before_one_that_is_too_long_come_first() -> None:
    rows = NUMBERS.map(lambda n: {"n": np.full(9 if n == BAD else 4, n)})
    elements, error, _ = received(rows.pack(8, fields=["n"]))
    assert (len(elements), type(error)) == (500, BatchShapeError)


def test_rows_of_a_mixture_before_a_failure_of_one_input_come_first() -> None:
    mixture = Dataset.sample_from([NUMBERS.map(refuse_later), NUMBERS], [0.5, 0.5], stop="all")
    wanted, _, _ = received(mixture, debug=True, seed=3)
    for _ in range(5):
        elements, error, _ = received(mixture, seed=3)
        assert elements == wanted
        assert isinstance(error, Refused)


def test_batches_on_a_device_before_a_failure_stay_good() -> None:
    batches, error, _ = received(NUMBERS.map(refuse).batch(64).to_device("cpu"))
    assert [int(batch[0]) for batch in batches] == list(range(0, 960, 64))
    assert isinstance(error, Refused)


def test_a_budget_of_failures_is_spent_at_the_same_row_in_every_run() -> None:
    def refuse_hundreds(number: int) -> int:
        if number % 100 == 50:
            raise Refused(number)
        return number

    for executor in ("thread", "inline"):
        plan = NUMBERS.map(refuse_hundreds, on_error=asd.Skip(max_count=3), executor=executor)
        for _ in range(5):
            elements, error, _ = received(plan.filter(lambda n: n % 2 == 0))
            assert elements == [n for n in range(350) if n % 100 != 50 and n % 2 == 0]
            assert isinstance(error, ErrorBudgetError)


# -- files


def damaged(path: Path, compress: Callable[[bytes], bytes] = bytes) -> str:
    """Write a TFRecord file of 1,500 records of which number 1,000 is damaged."""
    with asd.TFRecordWriter(path) as writer:
        for number in range(1500):
            writer.write(b"%08d" % number)
    data = bytearray(path.read_bytes())
    data[24 * BAD + 14] ^= 1
    path.write_bytes(compress(bytes(data)))
    return str(path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_records_before_a_corrupt_one_come_first(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    compression = "" if compress is bytes else "gzip"
    plan = Dataset.from_tfrecord(damaged(tmp_path / "a.tfrecord", compress), compression=compression)
    for _ in range(5):
        batches, error, _ = received(plan.batch(64))
        assert (len(batches), type(error)) == (15, CorruptRecordError)
        assert int(batches[-1][-1]) == 959


def test_records_before_one_that_does_not_parse_come_first(tmp_path: Path) -> None:
    with asd.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for number in range(1500):
            writer.write(b"no example" if number == BAD else asd.encode_example({"n": number}))
    features = {"n": asd.FixedLen((), np.int64)}
    for plan in (
        Dataset.from_tfrecord(str(tmp_path / "*.tfrecord")).parse_example(features),
        Dataset.from_tfrecord(str(tmp_path / "*.tfrecord")).filter(lambda record: True).parse_example(features),
    ):
        batches, error, _ = received(plan.batch(64))
        assert (len(batches), error is None) == (15, False)


def test_rows_before_a_shard_that_is_gone_come_first(tmp_path: Path) -> None:
    for shard in range(20):
        (tmp_path / f"{shard:02}.txt").write_text("".join(f"{shard} {row}\n" for row in range(300)))
    elements = []
    with Dataset.from_text(str(tmp_path / "*.txt"), cycle_length=1).open() as loader:
        (tmp_path / "18.txt").unlink()  # far behind what is read ahead
        with pytest.raises(StorageError, match=r"18\.txt"):  # noqa: PT012 - what came before it counts
            for element in loader:
                elements.append(element)
    assert elements == [f"{shard} {row}" for shard in range(18) for row in range(300)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["tfrecord", "text", "jsonl"])
def test_rows_before_damage_come_first_after_a_resume_that_recalls_the_rows_in_front_of_it(
    tmp_path: Path, name: str, compress: Callable[[bytes], bytes]
) -> None:
    if name == "tfrecord":
        damaged(tmp_path / "a", compress)
        rows: Dataset[Any] = Dataset.from_tfrecord(tmp_path / "a")
    else:
        lines = [b"\xff" if number == BAD else b"%d" % number for number in range(1500)]
        (tmp_path / "a").write_bytes(compress(b"\n".join(lines)))
        rows = Dataset.from_text(tmp_path / "a") if name == "text" else Dataset.from_jsonl(tmp_path / "a")
    plan = rows.shuffle(100, seed=1)
    whole, error, _ = received(plan)
    assert (len(whole), type(error)) == (900, CorruptRecordError)
    for count in (0, 850, 899, 900):
        with plan.open() as loader:
            before = [next(loader) for _ in range(count)]
            state = loader.state_dict()
        behind: list[Any] = []
        with plan.open(state) as loader, pytest.raises(CorruptRecordError):
            behind.extend(loader)
        assert before + behind == whole


def test_a_row_in_front_of_damage_is_fetched(tmp_path: Path) -> None:
    plan = Dataset.from_tfrecord(damaged(tmp_path / "a"))
    with plan.open() as loader:
        next(loader)
        (origin,) = loader.origins()
    assert plan.fetch(origin) == b"%08d" % 0
