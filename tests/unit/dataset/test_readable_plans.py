"""What a data set and its plan look like to the person who wrote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd

TEN = asd.Dataset.range(10)
SLICES = asd.Dataset.from_tensor_slices({"x": np.zeros((6, 2), np.float32), "y": np.arange(6)})
FILES = "/data/*.tfrecord"


def double(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize(
    ("dataset", "call"),
    [
        (TEN, "range(10)"),
        (asd.Dataset.range(2, 10), "range(2, 10)"),
        (asd.Dataset.range(0, 10, 3, dtype=np.int32), "range(0, 10, 3, dtype=int32)"),
        (SLICES, "from_tensor_slices({x: float32[6, 2], y: int64[6]})"),
        (asd.Dataset.from_iterable([1, 2]), "from_iterable(list)"),
        (asd.Dataset.from_generator(lambda: iter(())), "from_generator(lambda)"),
        (asd.Dataset.from_tfrecord(FILES), "from_tfrecord('/data/*.tfrecord')"),
        (asd.Dataset.from_tfrecord([FILES, "b"], ordered=False), f"from_tfrecord(['{FILES}', 'b'], ordered=False)"),
        (asd.Dataset.from_text("a", compression="gzip", verify=False), "from_text('a', compression='gzip')"),
        (asd.Dataset.from_fixed_length("a", 8), "from_fixed_length('a', 8)"),
        (asd.Dataset.from_files("a"), "from_files('a')"),
        (asd.Dataset.list_files("a", seed=3), "list_files('a', seed=3)"),
        (asd.Dataset.from_text("a", storage_options={"key": "hidden"}), "from_text('a', storage_options=...)"),
        (TEN.map(double), "map(double)"),
        (TEN.map(double, executor=asd.AUTO, concurrency=3), "map(double, executor=AUTO, concurrency=3)"),
        (TEN.filter(lambda x: True, on_error="skip"), "filter(lambda, on_error='skip')"),
        (TEN.flat_map(lambda x: [x]), "flat_map(lambda)"),
        (TEN.interleave(lambda x: [x], cycle_length=2), "interleave(lambda, cycle_length=2)"),
        (TEN.shuffle(), "shuffle()"),
        (TEN.shuffle(5, seed=1), "shuffle(5, seed=1)"),
        (TEN.batch(4, drop_remainder=True), "batch(4, drop_remainder=True)"),
        (TEN.batch(4).rebatch(3), "rebatch(3)"),
        (TEN.batch(4).rebatch([2, 1], strings="columns"), "rebatch([2, 1], strings='columns')"),
        (TEN.window(3, shift=1), "window(3, shift=1)"),
        (TEN.repeat(), "repeat()"),
        (TEN.repeat(2), "repeat(2)"),
        (TEN.enumerate(5), "enumerate(5)"),
        (TEN.prefetch(), "prefetch()"),
        (TEN.prefetch(2), "prefetch(2)"),
        (TEN.in_subprocess(2), "in_subprocess(2)"),
        (TEN.batch(2).to_device("cpu", depth=2), "to_device('cpu', depth=2)"),
        (asd.Dataset.sample_from([TEN, TEN]), "sample_from()"),
        (asd.Dataset.sample_from([TEN, TEN], [1, 3]), "sample_from(weights=[1, 3])"),
    ],
)
def test_explain_prints_each_operator_as_it_was_written(dataset: asd.Dataset[Any], call: str) -> None:
    last = dataset.explain().splitlines()[: 1 + dataset.explain().count("  # ")][-1]
    assert last.partition("  # ")[0].strip() == call


def test_explain_prints_no_step_that_nobody_wrote() -> None:
    assert "unbatch" not in TEN.batch(4).rebatch(3).explain()
    assert repr(TEN.batch(4).unbatch().rebatch(3)).count("unbatch()") == 1


@pytest.mark.parametrize("make", [repr, lambda dataset: dataset.explain()])
def test_what_is_shown_of_a_data_set_holds_no_internal_names(make: Callable[[Any], str]) -> None:
    shown = make(SLICES.map(double).shuffle().batch(2).prefetch())
    for name in ("Auto.AUTO", "<lambda>", "<locals>", "dtype(", "permuted", "executor=thread", "None"):
        assert name not in shown


def test_the_repr_of_a_data_set_is_its_chain_and_what_an_element_is() -> None:
    assert repr(TEN.shuffle().batch(2)) == "<Dataset range(10).shuffle().batch(2), each element: int64[?]>"
    zipped = asd.Dataset.zip(TEN, SLICES).take(2)
    assert "zip(range(10), from_tensor_slices(" in repr(zipped)
    assert "(int64, {x: float32[2], y: int64})" in repr(zipped)


def test_the_repr_of_a_long_chain_is_shortened() -> None:
    dataset: asd.Dataset[Any] = TEN
    for number in range(100):
        dataset = dataset.take(number)
    assert len(repr(dataset)) < 250


def test_the_repr_of_elements_with_many_leaves_is_shortened() -> None:
    wide = asd.Dataset.from_tensor_slices({f"leaf{number}": np.arange(2) for number in range(100)})
    assert len(repr(wide)) < 400
    assert "leaf50: int64" in wide.explain()


@dataclass(frozen=True)
class Point:
    x: Any

    def __repr__(self) -> str:
        return f"{self.x:.2f}"


def test_elements_whose_own_repr_fails_are_shown() -> None:
    points = asd.Dataset.from_tensor_slices(Point(np.arange(3)))
    assert repr(points) == "<Dataset from_tensor_slices(Point(x: int64[3])), each element: Point(x: int64)>"
    assert "each element: Point(x: int64)" in points.explain()


def test_plans_hide_the_secrets_of_urls_and_options() -> None:
    url = "https://me:hidden@example.com/a.txt?sig=hidden"
    dataset = asd.Dataset.from_text(url, index=url, storage_options={"key": "hidden"}).batch(2)
    assert "hidden" not in repr(dataset) + dataset.explain()


def test_the_repr_of_a_loader_is_its_chain_and_where_it_stands() -> None:
    with TEN.batch(2).open() as loader:
        next(iter(loader))
        assert repr(loader) == "<Loader of range(10).batch(2): 1 element received, open>"
    assert repr(loader) == "<Loader of range(10).batch(2): 1 element received, closed>"


def test_the_repr_of_an_origin_says_where_a_row_came_from_and_no_more() -> None:
    with TEN.open() as loader:
        next(iter(loader))
        assert repr(loader.origins()) == "[<Origin range record 0 (epoch 0)>]"


def test_elements_of_a_loader_that_was_closed_half_way_stay_counted() -> None:
    with TEN.open() as loader:
        taken = [next(iter(loader)) for _ in range(3)]
        loader.skip(1)
        taken.append(next(iter(loader)))
        assert loader.stats().consumer.elements == len(taken)
    assert loader.stats().consumer.elements == len(taken) == 4


def test_counters_read_as_a_few_lines_and_as_one() -> None:
    with TEN.shuffle(5).batch(2).open() as loader:
        list(loader)
    stats = loader.stats()
    assert str(stats).splitlines()[0].startswith("delivered 5 elements in ")
    assert str(stats).splitlines()[-1] == "rows that each stage gave: range 10, shuffle 10, batch 5"
    for shown in (repr(stats), repr(loader.report())):
        assert "delivered 5 elements" in shown
        assert "\n" not in shown
    for internal in ("StageCounters", "started_at", "stream_hash"):
        assert internal not in str(stats) + repr(stats) + repr(loader.report())


def test_a_data_set_is_a_table_in_a_notebook() -> None:
    shown = SLICES.batch(2).map(double)._repr_html_()
    assert shown.count("<tr>") == 4
    for cell in ("batch(2)", "map(double)", "{x: float32[6, 2], y: int64[6]}", ">6<", ">3<"):
        assert cell in shown


def test_counters_of_a_loader_are_a_table_in_a_notebook() -> None:
    with TEN.batch(2).open() as loader:
        list(loader)
        shown = [each._repr_html_() for each in (loader, loader.stats(), loader.report())]
    for html in shown:
        assert "<table>" in html
        assert ">batch</td>" in html
        assert "delivered 5 elements" in html
    assert "range(10).batch(2)" in shown[0]
    assert "limit: " in shown[2]


def test_html_shows_text_as_text_and_no_secrets() -> None:
    url = "https://me:hidden@example.com/<script>.txt?sig=hidden"
    named = asd.Dataset.sample_from({"<b>bold</b>": TEN, "<i>": TEN}, {"<b>bold</b>": 1, "<i>": 2})
    rows = asd.Dataset.from_tensor_slices({"<script>alert(1)</script>": np.arange(3)})
    with rows.open() as loader:
        for shown in (each._repr_html_() for each in (asd.Dataset.from_text(url), named, rows, loader)):
            assert "hidden" not in shown
            for markup in ("<script", "<b>", "<i>"):
                assert markup not in shown
