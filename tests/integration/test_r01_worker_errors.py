"""An error in a worker process arrives with its name, traceback and record, and leaves nothing running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaks import leaves_nothing
from user_functions import (
    exit_on_seven,
    fail_moodily,
    fail_on_number_seven,
    fail_on_seven,
    interrupt_on_seven,
    unpicklable,
)

import aiostream_data as asd
from aiostream_data.errors import RecordError

HUNDRED = asd.Dataset.range(100)


def test_r01_an_error_in_a_worker_process_says_type_traceback_stage_and_record() -> None:
    with pytest.raises(RecordError, match="seven is refused") as caught:
        list(HUNDRED.map(fail_on_seven, executor="process", concurrency=2))
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.type_name == "ValueError"
    assert 'raise ValueError("seven is refused")' in error.worker_traceback
    notes = "\n".join(error.__notes__)
    assert "stage: map" in notes
    assert "record: range record 7" in notes
    assert "element: 7" in notes


def test_r01_an_error_in_a_worker_process_names_the_shard_and_the_record_in_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.tfrecord"
    with asd.TFRecordWriter(path) as writer:
        for number in range(20):
            writer.write(asd.encode_example({"number": number}))
    dataset = asd.Dataset.from_tfrecord(str(path)).parse_example({"number": asd.FixedLen((), np.int64)})
    with pytest.raises(RecordError, match="seven is refused") as caught:
        list(dataset.map(fail_on_number_seven, executor="process", concurrency=2))
    assert f"record: {path} record 7" in caught.value.__notes__


def test_r01_after_an_error_in_a_worker_process_everything_is_gone_within_two_seconds() -> None:
    with leaves_nothing(within_s=2.0):
        loader = HUNDRED.map(fail_on_seven, executor="process", concurrency=2).open()
        with pytest.raises(RecordError):
            list(loader)
        del loader


def test_r01_an_exception_that_cannot_be_rebuilt_still_arrives_with_its_name() -> None:
    with pytest.raises(RecordError, match="bad at 3") as caught:
        list(HUNDRED.map(fail_moodily, executor="process", concurrency=1))
    assert caught.value.type_name.endswith("MoodyError")
    assert "fail_moodily" in caught.value.worker_traceback


@pytest.mark.parametrize(
    ("function", "name"), [(interrupt_on_seven, "KeyboardInterrupt"), (exit_on_seven, "SystemExit")]
)
def test_r01_a_signal_raised_in_a_worker_process_is_an_error_like_any_other(function: Any, name: str) -> None:
    with pytest.raises(RecordError) as caught:
        list(HUNDRED.map(function, executor="process", concurrency=1))
    assert caught.value.type_name == name


def test_r01_a_result_that_does_not_pickle_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(RecordError, match=r"(?i)pickle"):
        list(HUNDRED.map(unpicklable, executor="process", concurrency=1))
