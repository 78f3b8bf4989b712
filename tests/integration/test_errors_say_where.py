"""An error that reaches the consumer says what failed, where it was written, and on which record; and nothing of us."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_functions import fail_deeply

import aiostream_data as asd
from aiostream_data._engine.calls import loop_steps
from aiostream_data.errors import CorruptRecordError, RecordError
from aiostream_data.plan.base import walk
from aiostream_data.plan.fingerprint import describe_plan, digest
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.written import SourceLine

HERE = Path(__file__).name


def here() -> int:
    """Return the number of the line that calls."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def check(number: int) -> int:
    if number == 7:
        raise ValueError("seven is refused")
    return number


def decode(number: int) -> int:
    return check(number)


async def decode_later(number: int) -> int:
    await asyncio.sleep(0)
    return check(number)


def generate() -> Iterator[int]:
    yield from map(check, range(100))


async def generate_async() -> AsyncIterator[int]:
    for number in range(100):
        yield check(number)


def error_of(dataset: asd.Dataset[Any], **options: Any) -> BaseException:
    with dataset.open(**options) as loader, pytest.raises(BaseException) as caught:
        list(loader)
    return caught.value


def frames_of(error: BaseException) -> list[str]:
    """Return the functions in a traceback that the loader's own iteration called, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    raised = next(number for number, frame in enumerate(frames) if frame.name == "_accept")
    return [frame.name for frame in frames[raised + 1 :]]


FAILING: dict[str, tuple[Callable[[], asd.Dataset[Any]], list[str]]] = {
    "map": (lambda: asd.Dataset.range(100).map(decode), ["decode", "check"]),
    "inline map": (lambda: asd.Dataset.range(100).map(decode, executor="inline"), ["decode", "check"]),
    "concurrent map": (lambda: asd.Dataset.range(100).map(decode, concurrency=4), ["decode", "check"]),
    "coroutine": (lambda: asd.Dataset.range(100).map(decode_later), ["decode_later", "check"]),
    "filter": (lambda: asd.Dataset.range(100).filter(lambda x: decode(x) >= 0), ["<lambda>", "decode", "check"]),
    "flat_map": (lambda: asd.Dataset.range(100).flat_map(lambda x: [decode(x)]), ["<lambda>", "decode", "check"]),
    "rng": (lambda: asd.Dataset.range(100).map(lambda x, rng: decode(x)), ["<lambda>", "decode", "check"]),
    "batched": (lambda: asd.Dataset.range(100).map(lambda x: decode(7), batched=True), ["<lambda>", "decode", "check"]),
    "generator": (lambda: asd.Dataset.from_generator(generate), ["generate", "check"]),
    "async generator": (lambda: asd.Dataset.from_generator(generate_async), ["generate_async", "check"]),
    "in a chain": (lambda: asd.Dataset.range(50).map(decode).repeat(2).shuffle(3).batch(2), ["decode", "check"]),
    "inner": (
        lambda: asd.Dataset.range(3).flat_map(lambda x: asd.Dataset.range(9).map(decode)),
        ["decode", "check"],
    ),
}


@pytest.mark.parametrize(("build", "frames"), FAILING.values(), ids=FAILING)
def test_of_the_frames_below_the_consumer_only_the_users_are_left(
    build: Callable[[], asd.Dataset[Any]], frames: list[str]
) -> None:
    assert frames_of(error_of(build())) == frames


def test_timing_the_steps_of_a_coroutine_adds_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_steps, "EVERY_S", 0.0)
    build, frames = FAILING["coroutine"]
    assert frames_of(error_of(build())) == frames


@pytest.mark.parametrize(("build", "frames"), FAILING.values(), ids=FAILING)
def test_all_frames_are_there_when_they_are_asked_for(build: Callable[[], asd.Dataset[Any]], frames: list[str]) -> None:
    found = frames_of(error_of(build(), full_tracebacks=True))
    assert found[-len(frames) :] == frames
    assert len(found) > len(frames)


def test_the_notes_have_one_order_and_name_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    path = tmp_path / "a.tfrecord"
    with asd.TFRecordWriter(path) as writer:
        for _ in range(10):
            writer.write(b"x" * 10)

    def as_dict(record: bytes) -> dict[str, Any]:
        return {"record": record, "label": np.zeros((2, 3), np.int32)}

    def fail(element: dict[str, Any]) -> Any:
        raise ValueError("refused")

    written = here() + 1
    dataset = asd.Dataset.from_tfrecord(path).map(as_dict).map(fail)
    error = error_of(dataset)
    assert error.__notes__ == [
        f"stage: map, written at {HERE}:{written}",
        f"function: {fail.__qualname__} ({HERE}:{fail.__code__.co_firstlineno})",
        f"record: {path} record 0, at byte 0",
        "element: {record: bytes[10], label: int32[2, 3]}",
    ]


def test_a_record_is_named_by_the_nearest_byte_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    rows, nbytes = 200_000, 16 + 10  # no small shard, of which only the start is noted
    with asd.TFRecordWriter(path) as writer:
        for _ in range(rows):
            writer.write(b"x" * 10)
    number = [0]

    def fail_late(record: bytes) -> bytes:
        number[0] += 1
        if number[0] == rows:
            raise ValueError("the last one")
        return record

    note = error_of(asd.Dataset.from_tfrecord(path).map(fail_late)).__notes__[2]
    begin, _, where = note.partition(", ")
    assert begin == f"record: {path} record {rows - 1}"
    after, _, offset = where.partition(" records behind the one at byte ")
    assert int(offset) == nbytes * (rows - 1 - int(after))
    assert 0 < int(after) < rows - 1


def test_each_operator_of_a_chain_over_several_lines_is_found_at_its_own_line() -> None:
    first = here() + 2
    dataset = (
        asd.Dataset.range(10)
        .map(decode)
        .batch(2)
    )  # fmt: skip
    lines = [node.written_at for node in walk(dataset.plan)]
    assert lines == [SourceLine(__file__, first), SourceLine(__file__, first + 1), SourceLine(__file__, first + 2)]


def test_the_line_survives_rewrites_and_pickling_and_means_nothing() -> None:
    one = asd.Dataset.range(10).shuffle().batch(2)
    other = asd.Dataset.range(10).shuffle().batch(2)
    assert one.plan.written_at != other.plan.written_at
    assert digest(describe_plan(one.plan)) == digest(describe_plan(other.plan))
    assert rewrite(one.plan).written_at == one.plan.written_at
    assert replace(one.plan).written_at == one.plan.written_at
    assert pickle.loads(pickle.dumps(one)).plan.written_at == one.plan.written_at


def test_a_function_that_holds_a_data_set_is_the_same_wherever_that_was_written() -> None:
    def around(inner: asd.Dataset[Any]) -> asd.Dataset[Any]:
        return asd.Dataset.range(2).flat_map(lambda _: inner)

    one = asd.Dataset.range(10)
    other = asd.Dataset.range(10)
    assert describe_plan(around(one).plan) == describe_plan(around(other).plan)


def test_a_state_opens_a_chain_that_was_written_elsewhere() -> None:
    with asd.Dataset.range(10).map(abs).open(seed=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with asd.Dataset.range(10).map(abs).open(state) as loader:
        assert list(loader) == list(range(1, 10))


def test_an_error_in_a_process_is_told_the_same_way() -> None:
    written = here() + 1
    error = error_of(asd.Dataset.range(100).map(fail_deeply, executor="process", concurrency=1))
    assert isinstance(error, RecordError)
    notes = [note.splitlines()[0] for note in error.__notes__]
    assert notes[0].endswith(f"{HERE}:{written}")
    assert notes[1].startswith("function: fail_deeply (")
    assert notes[2] == "record: range record 7"
    assert notes[3] == "element: 7"
    text = error.worker_traceback
    assert "in fail_deeply" in text
    assert "in _too_deep" in text
    assert 'raise ValueError("seven is refused")' in text
    assert text.count("\n  File ") == 3
    assert text.endswith("ValueError: seven is refused\n")
    assert frames_of(error) == []


def test_an_error_in_a_process_keeps_all_frames_when_they_are_asked_for() -> None:
    error = error_of(asd.Dataset.range(100).map(fail_deeply, executor="process", concurrency=1), full_tracebacks=True)
    assert isinstance(error, RecordError)
    assert "_native/scalar_map" in error.worker_traceback


def test_what_a_function_was_handling_or_names_as_the_cause_is_kept() -> None:
    def implicit(number: int) -> None:
        try:
            check(7)
        except ValueError:
            raise KeyError("during") from None if number == 1 else KeyError("during")

    def explicit(number: int) -> None:
        try:
            check(7)
        except ValueError as error:
            raise KeyError("from") from error

    def plain(number: int) -> None:
        try:
            check(7)
        except ValueError:
            raise KeyError("during")  # noqa: B904 - what is tested

    error = error_of(asd.Dataset.range(1).map(plain).batch(2).repeat(2))
    assert isinstance(error.__context__, ValueError)
    assert not error.__suppress_context__
    assert error.__cause__ is None
    assert [frame.name for frame in traceback.extract_tb(error.__context__.__traceback__)] == ["plain", "check"]
    assert isinstance(error_of(asd.Dataset.range(1).map(explicit).batch(2)).__cause__, ValueError)
    assert error_of(asd.Dataset.range(1, 2).map(implicit)).__suppress_context__


def test_damage_is_told_in_one_sentence_and_the_stage_without_frames_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with asd.TFRecordWriter(path) as writer:
        writer.write(b"x" * 10)
    path.write_bytes(path.read_bytes()[:-3])
    error = error_of(asd.Dataset.from_tfrecord(path))
    assert isinstance(error, CorruptRecordError)
    assert frames_of(error) == []


def test_the_root_cause_is_the_last_thing_printed_before_the_notes() -> None:
    error = error_of(asd.Dataset.range(100).map(decode).map(abs).batch(4).prefetch(2))
    printed = "".join(traceback.format_exception(error))
    assert printed.count("Traceback (most recent call last)") == 1
    assert printed.splitlines()[-5:-4] == ["ValueError: seven is refused"]


def test_an_error_in_a_loader_inside_a_function_keeps_its_own_notes_together() -> None:
    def outer(number: int) -> list[int]:
        return list(asd.Dataset.range(10).map(decode))

    notes = error_of(asd.Dataset.range(3).map(outer)).__notes__
    assert [note.partition(":")[0] for note in notes] == [
        *("stage", "function", "record", "element"),
        *("stage", "function", "record", "element"),
    ]


def test_of_stages_that_run_together_the_one_that_failed_is_named() -> None:
    dataset = asd.Dataset.range(100)
    line = here() + 1
    dataset = dataset.map(decode)
    dataset = dataset.map(abs).filter(lambda x: x >= 0)
    assert error_of(dataset).__notes__[0].endswith(f"{HERE}:{line}")


def test_explain_says_where_each_stage_was_written() -> None:
    line = here() + 1
    dataset = asd.Dataset.range(10).map(abs)
    assert dataset.explain().count(f"{HERE}:{line}") == 2
