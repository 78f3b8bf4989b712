"""The states of all ranks are one, whatever each rank had read; states of different steps and damaged ones are not."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data._engine.sources import group_limits
from aiostream_data.errors import DamagedStateError, StateMismatchError
from aiostream_data.state_checksum import checksum_of_state
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


def with_values(state: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return another state that somebody gave the right checksum."""
    changed = {name: value for name, value in {**state, **values}.items() if name != "check"}
    return {**changed, "check": checksum_of_state(changed)}


def is_early_or_late(row: int) -> bool:
    return row < 10 or row >= 20


def test_states_of_ranks_that_read_ranges_of_other_sizes_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_limits, "GROUP_NBYTES", 0)  # small shards are read whole
    dataset = records(tmp_path)
    with dataset.open(seed=1, rank=0, world_size=1) as loader:
        rows = list(loader)
        whole = loader.stream_hash
    states = [state_of(dataset, 0, 5)]
    for constant in ("FIRST_NBYTES", "NEXT_NBYTES", "NEAR_NBYTES", "AMONG_MANY_NBYTES"):
        monkeypatch.setattr(ranges, constant, 30)
    states.append(state_of(dataset, 1, 5))
    assert states[0]["position"] != states[1]["position"]
    with dataset.open(states, rank=0, world_size=1) as loader:
        assert list(loader) == rows[10:]
        assert loader.stream_hash == whole


def test_states_of_ranks_that_left_out_more_or_fewer_rows_ahead_are_one() -> None:
    dataset = Dataset.range(30).filter(is_early_or_late)
    states = [state_of(dataset, rank, 5) for rank in range(2)]
    # Rows 10 to 19 are left out. How many of them a rank has left out behind its last row depends on the moment.
    states = [with_values(states[0], position={"op": "rows", "next": 10}),
              with_values(states[1], position={"op": "rows", "next": 17})]  # fmt: skip
    for given in (states, states[::-1]):
        with dataset.open(given, rank=0, world_size=1) as loader:
            assert list(loader) == list(range(20, 30))
            whole = loader.stream_hash
        with dataset.open(seed=1, rank=0, world_size=1) as loader:
            list(loader)
            assert loader.stream_hash == whole


def test_states_of_other_steps_are_refused(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    with pytest.raises(StateMismatchError, match=r"different steps: elements is 5 in state\[0\], but 6 in state\[1\]"):
        dataset.open([state_of(dataset, 0, 5), state_of(dataset, 1, 6)], rank=0, world_size=1)


@pytest.mark.parametrize("block", [["0.tfrecord"], [("0.tfrecord", 3)]])
def test_states_of_ranks_that_blocked_other_rows_are_refused(tmp_path: Path, block: list[Any]) -> None:
    dataset = records(tmp_path)
    with dataset.open(seed=1, rank=1, world_size=2, block=block) as loader:
        list(islice(loader, 5))
        other = loader.state_dict()
    with pytest.raises(StateMismatchError, match="different steps: the list of blocked"):
        dataset.open([state_of(dataset, 0, 5), other], rank=0, world_size=1)


def test_the_state_of_another_pipeline_among_them_is_refused(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    states = [state_of(dataset, 0, 5), state_of(dataset.shuffle(3), 1, 5)]
    with pytest.raises(StateMismatchError, match=r"state\[1\]: shuffle .* was removed"):
        dataset.open(states, rank=0, world_size=1)


def test_the_state_that_is_damaged_is_named(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    states = [state_of(dataset, rank, 5) for rank in range(2)]
    wrong: list[Any] = [{**states[1], "elements": 4}, "a text", {**states[1], "version": 1}]
    for damaged in wrong:
        with pytest.raises(StateMismatchError, match=r"state\[1\](:| was changed after state_dict)"):
            dataset.open([states[0], damaged], rank=0, world_size=1)
    with pytest.raises(DamagedStateError) as told:
        dataset.open([states[0], with_values(states[1], epoch=-1)], rank=0, world_size=1)
    assert told.value.path == 'state[1]["epoch"]'


def test_a_damaged_position_among_them_is_refused(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    states = [state_of(dataset, rank, 5) for rank in range(2)]
    for damaged in (None, 7, [3], {"op": "files", "streams": 7}, {"op": "files", "streams": [7, [], None]}):
        for number in range(2):
            given = [with_values(one, position=damaged) if one is states[number] else one for one in states]
            with pytest.raises(DamagedStateError) as told:
                dataset.open(given, rank=0, world_size=1)
            assert told.value.path.startswith(f'state[{number}]["position"]')
