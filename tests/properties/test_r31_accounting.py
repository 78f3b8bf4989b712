"""R31: the rows of every stage add up on any plan, and a row that gets lost is found out wherever it was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plan_functions as fn
import pytest
from drawn import Drawn
from drawn_cases import CASE_S, cases, ends_within, in_time
from hypothesis import given
from hypothesis import strategies as st
from plan_files import pattern
from plan_sources import FEATURES
from plans import plans
from small_chunks import Recut, small_chunks

from aiostream_data import Dataset
from aiostream_data._engine.calls import row_work
from aiostream_data._engine.flow.channel import Receiver
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.stages.batch import BatchStep
from aiostream_data._engine.stages.shuffle import ShuffleStep
from aiostream_data.errors import CardinalityError
from aiostream_data.metrics.counters import StageCounters

SIZES = st.tuples(st.integers(1, 12), st.integers(5, 300))

ONE_FOR_ONE = {"map", "enumerate", "parse_example", "prefetch"}
LEAVING_OUT = {"filter", "skip", "shard"}
GIVING_ALL = {"shuffle"}
CUTTING_SHORT = ("take(", "zip(", "choose_from(", "few_batched")


def adds_up(stage: StageCounters) -> bool:
    """True unless the counters of a stage that has read its whole input contradict each other."""
    name = stage.name.rsplit("/")[-1]
    if name in ONE_FOR_ONE | GIVING_ALL:
        return stage.rows == stage.rows_in and stage.dropped == 0
    if name in LEAVING_OUT:
        return stage.rows + stage.dropped == stage.rows_in
    return True


@in_time
@cases(150)
@given(plans().filter(lambda plan: not any(call in plan.text for call in CUTTING_SHORT)), SIZES)
def test_rows_in_are_rows_out_and_rows_left_out(plan: Drawn, size: tuple[int, int]) -> None:
    with (
        ends_within(CASE_S, plan, size),
        small_chunks() as cut,
        Recut(plan.dataset, cut, iter([size])).open() as loader,
    ):
        given = list(loader)
    stats = loader.stats()
    assert [stage for stage in stats.stages if not adds_up(stage)] == []
    assert stats.consumer.elements == len(given)
    assert stats.stages[-1].rows == len(given)


NUMBERS = Dataset.range(100)
HANDED_ON: dict[str, Dataset[Any]] = {
    "map": NUMBERS.map(fn.number),
    "coroutine map": NUMBERS.map(fn.later),
    "unordered map": NUMBERS.map(fn.number, ordered=False),
    "batched map": NUMBERS.map(fn.doubled, batched=True),
    "filter": NUMBERS.filter(fn.is_kept),
    "enumerate": NUMBERS.enumerate(),
    "skip": NUMBERS.skip(7),
    "shard": NUMBERS.shard(3, 1),
    "prefetch": NUMBERS.prefetch(3),
    "parse_example": Dataset.from_tfrecord(pattern(".example")).prefetch(2).parse_example(FEATURES),
}


def losing_once(function: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
    """Return ``function``, which loses the first row of the first chunk that is its argument number ``place``."""
    lost: list[Any] = []

    def losing(*args: Any) -> Any:
        chunk = args[place]
        if lost or not len(chunk):
            return function(*args)
        lost.append(chunk)
        return function(*args[:place], chunk.slice(1, len(chunk)), *args[place + 1 :])

    return losing


@pytest.mark.parametrize("name", HANDED_ON)
def test_a_row_that_a_stage_does_not_hand_on_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = HANDED_ON[name]
    label, send = dataset.plan.label, Outlet.send
    losing = losing_once(send, 1)

    def send_or_lose(outlet: Outlet, chunk: Any, *nbytes: int) -> Any:
        return (losing if outlet.counters.name == label else send)(outlet, chunk, *nbytes)

    monkeypatch.setattr(Outlet, "send", send_or_lose)
    with pytest.raises(CardinalityError, match=f"stage {label} received"):
        list(dataset)


@pytest.mark.parametrize("step", [ShuffleStep, BatchStep])
def test_a_row_that_a_step_does_not_take_in_is_found_out(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "push", losing_once(step.push, 1))
    with pytest.raises(CardinalityError, match="received 100 rows but accounts for 99"):
        list(NUMBERS.shuffle(10).batch(3) if step is ShuffleStep else NUMBERS.batch(3))


@pytest.mark.parametrize(("work", "name"), [("_mapped", "map"), ("map_batched", "batched map")])
def test_a_row_that_the_work_of_map_loses_is_found_out(work: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_work, work, losing_once(getattr(row_work, work), 1))
    with pytest.raises(CardinalityError, match="stage map received 100 rows but accounts for 99"):
        list(HANDED_ON[name])


BETWEEN: dict[str, Dataset[Any]] = {
    "map": NUMBERS.map(fn.number),
    "interleave": NUMBERS.interleave(fn.few, cycle_length=3),
    "concatenate": NUMBERS.concatenate(NUMBERS),
    "zip": NUMBERS.zip(NUMBERS),
    "repeat": NUMBERS.shuffle(5).repeat(2),
    "cache": NUMBERS.map(fn.number).cache(),
    "files": Dataset.from_tfrecord(pattern(".tfrecord"), cycle_length=2),
    "the consumer": NUMBERS,
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_chunk_that_is_lost_between_two_stages_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take, lost = Receiver.take, list[Any]()

    def take_or_lose(receiver: Receiver[Any]) -> Any:
        if not lost:
            lost.append(take(receiver))
        return take(receiver)

    monkeypatch.setattr(Receiver, "take", take_or_lose)
    with pytest.raises(CardinalityError):
        list(BETWEEN[name])
