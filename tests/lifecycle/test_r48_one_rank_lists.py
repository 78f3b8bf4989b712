"""R48: with ranks, one of them lists for all, and the others hear of its failures too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data.errors import NoMatchError, RankError, StorageError
from aiostream_data.ranks.listing import heard_shards, told_failure, told_shards
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store

WORLD = 3
ROWS = [f"line {number}" for number in range(12)]


class CountedStore(MemoryStore):
    """Objects in memory that remember how often they were listed or looked up."""

    asked: list[str]

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    async def glob(self, pattern: str) -> list[ShardRef]:
        self.asked.append(pattern)
        return await super().glob(pattern)


@pytest.fixture
def asked(memory_objects: None) -> Iterator[list[str]]:
    asked: list[str] = []
    for number in range(6):
        memory.put(
            f"counted://d/{number}.txt", "".join(f"{row}\n" for row in ROWS[2 * number : 2 * number + 2]).encode()
        )
    register_store("counted", lambda options, run_blocking: CountedStore(asked))
    yield asked
    register_store("counted", None)


class Channel:
    """What a collective would do: hands rank 0's message to the others."""

    def __init__(self) -> None:
        self._messages: Queue[bytes] = Queue()
        self.calls = 0

    def broadcast(self, message: bytes | None) -> bytes:
        self.calls += 1
        if message is None:
            return self._messages.get(timeout=20)
        for _ in range(WORLD - 1):
            self._messages.put(message)
        return message


def on_every_rank(dataset: asd.Dataset[Any], broadcast: Callable[[bytes | None], bytes], **options: Any) -> list[Any]:
    """Return what each rank gives, or its error."""

    def run(rank: int) -> Any:
        try:
            with dataset.open(rank=rank, world_size=WORLD, broadcast=broadcast, **options) as loader:
                return list(loader)
        except Exception as error:
            return error

    with leaves_nothing(), ThreadPoolExecutor(WORLD) as ranks:
        return list(ranks.map(run, range(WORLD)))


@pytest.mark.parametrize("policy", ["row", "file"])
def test_r48_only_rank_0_lists(asked: list[str], policy: str) -> None:
    channel = Channel()
    given = on_every_rank(asd.Dataset.from_text("counted://d/*.txt"), channel.broadcast, policy=policy)
    assert asked == ["counted://d/*.txt"]
    assert channel.calls == WORLD
    assert sorted(row for rows in given for row in rows) == sorted(ROWS)


def test_r48_every_rank_lists_where_nothing_joins_them(asked: list[str]) -> None:
    dataset = asd.Dataset.from_text("counted://d/*.txt")
    for rank in range(WORLD):
        with dataset.open(rank=rank, world_size=WORLD) as loader:
            list(loader)
    assert len(asked) == WORLD


def test_a_rank_alone_asks_nobody(asked: list[str]) -> None:
    channel = Channel()
    with asd.Dataset.from_text("counted://d/*.txt").open(rank=0, world_size=1, broadcast=channel.broadcast) as loader:
        assert list(loader) == ROWS
    assert channel.calls == 0


def test_all_sources_of_a_plan_are_told_of_in_one_call(asked: list[str]) -> None:
    channel = Channel()
    one, other = asd.Dataset.from_text("counted://d/[0-2].txt"), asd.Dataset.from_text("counted://d/[3-5].txt")
    given = on_every_rank(one.concatenate(other), channel.broadcast)
    assert channel.calls == WORLD
    assert sorted(asked) == ["counted://d/[0-2].txt", "counted://d/[3-5].txt"]
    assert sorted(row for rows in given for row in rows) == sorted(ROWS)


def test_what_rank_0_does_not_find_is_told_to_all(asked: list[str]) -> None:
    failures = on_every_rank(asd.Dataset.from_text("counted://d/*.none"), Channel().broadcast)
    assert [type(failure) for failure in failures] == [NoMatchError] * WORLD
    assert "rank 0" in str(failures[1])
    assert "rank 0" not in str(failures[0])
    assert len(asked) == 1


def test_a_broadcast_that_fails_is_the_error_of_its_rank(asked: list[str]) -> None:
    def refuse(message: bytes | None) -> bytes:
        raise ConnectionResetError("the group was closed")

    failures = on_every_rank(asd.Dataset.from_text("counted://d/*.txt"), refuse)
    assert [type(failure) for failure in failures] == [ConnectionResetError] * WORLD


@pytest.mark.parametrize("answer", [None, b"", b"[]", b'{"shards": [[1]]}', b"\xff", 7])
def test_what_is_not_rank_0s_message_is_refused(answer: Any) -> None:
    with pytest.raises(RankError, match="broadcast="):
        heard_shards(answer, 1)


def test_messages_say_what_was_found_or_why_not() -> None:
    shards = [ShardRef("s3://b/x", 3, '"etag"'), ShardRef("s3://b/\udcff")]
    assert heard_shards(told_shards([shards, []]), 2) == [shards, []]
    with pytest.raises(RankError, match="2 file sources"):
        heard_shards(told_shards([shards, []]), 1)
    with pytest.raises(StorageError, match="slow down"):
        heard_shards(told_failure(StorageError("s3://b/*", "slow down")), 1)
    with pytest.raises(RankError, match="an odd reason"):
        heard_shards(told_failure(ValueError("an odd reason")), 1)
