"""The states of all ranks are one, although every rank read ranges of its own sizes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import StateMismatchError
from aiostream_data.storage import ranges


def records(folder: Path) -> Dataset[bytes]:
    for file in range(2):
        with asd.TFRecordWriter(folder / f"{file}.tfrecord") as writer:
            for row in range(20):
                writer.write(f"{file}:{row}".encode())
    return Dataset.from_tfrecord(str(folder / "*.tfrecord"), cycle_length=2).shuffle(6)


def state_of(dataset: Dataset[Any], rank: int, taken: int) -> dict[str, Any]:
    with dataset.open(seed=1, rank=rank, world_size=2) as loader:
        list(islice(loader, taken))
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def test_states_of_ranks_that_read_ranges_of_other_sizes_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = records(tmp_path)
    with dataset.open(seed=1, rank=0, world_size=1) as loader:
        rows = list(loader)
        whole = loader.stream_hash
    states = [state_of(dataset, 0, 5)]
    for constant in ("FIRST_NBYTES", "NEXT_NBYTES", "AMONG_MANY_NBYTES"):
        monkeypatch.setattr(ranges, constant, 30)
    states.append(state_of(dataset, 1, 5))
    assert states[0]["position"] != states[1]["position"]
    with dataset.open(states, rank=0, world_size=1) as loader:
        assert list(loader) == rows[10:]
        assert loader.stream_hash == whole


def test_states_of_other_steps_are_refused(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    with pytest.raises(StateMismatchError, match="different steps"):
        dataset.open([state_of(dataset, 0, 5), state_of(dataset, 1, 6)], rank=0, world_size=1)


def test_a_damaged_position_among_them_is_refused(tmp_path: Path) -> None:
    from aiostream_data.state_check import checksum_of_state

    dataset = records(tmp_path)
    states = [state_of(dataset, rank, 5) for rank in range(2)]
    for damaged in (None, 7, [3], {"op": "files", "streams": 7}, {"op": "files", "streams": [7, [], None]}):
        states[1]["position"] = damaged
        states[1]["check"] = checksum_of_state({key: value for key, value in states[1].items() if key != "check"})
        with pytest.raises(StateMismatchError):
            dataset.open(states, rank=0, world_size=1)
