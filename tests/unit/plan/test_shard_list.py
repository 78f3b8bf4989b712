"""Lists of shards are summed up in little space and little time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from aiostream_data.object_names import lasting_url
from aiostream_data.plan.shard_difference import shard_difference
from aiostream_data.plan.shard_list import MAX_MARKED, ShardSummary, summarise_shards

LIMIT_S = 1.5


def urls(*numbers: int) -> list[str]:
    return [f"s3://b/x-{number}" for number in numbers]


def sentence(old: object, shards: list[str], versions: list[Any] | None = None) -> str:
    found = shard_difference(json.loads(json.dumps(old)), summarise_shards(shards, versions), shards)
    return found.sentence if found else ""


def test_the_same_shards_do_not_differ() -> None:
    for count in (0, 1, MAX_MARKED, MAX_MARKED + 1):
        shards = urls(*range(count))
        assert sentence(summarise_shards(shards), shards) == ""


def test_new_shards_are_named_and_missing_ones_counted() -> None:
    old = summarise_shards(urls(1, 2, 3))
    assert sentence(old, urls(1, 2, 3, 7)) == "1 shard is new: s3://b/x-7"
    new = "2 shards are new: s3://b/x-7, s3://b/x-8; 1 shard of the state is missing"
    assert sentence(old, urls(1, 7, 8, 3)) == new
    assert sentence(old, urls(2)) == "2 shards of the state are missing"
    assert sentence(old, urls(*range(12))).endswith("s3://b/x-6, s3://b/x-7, ...")


def test_a_shard_that_is_listed_twice_counts_twice() -> None:
    changed = "1 shard is new: s3://b/x-2; 1 shard of the state is missing"
    assert sentence(summarise_shards(urls(1, 1, 2)), urls(1, 2, 2)) == changed


def test_another_order_is_called_so() -> None:
    assert "another order" in sentence(summarise_shards(urls(1, 2)), urls(2, 1))


def test_a_long_list_tells_its_lengths() -> None:
    old = summarise_shards(urls(*range(1000)))
    assert "marks" not in old
    assert sentence(old, urls(*range(1001))) == "the shard list changed: 1,000 in the state, 1,001 now"
    assert "with other names or in another order" in sentence(old, urls(*range(1, 1001)))


def test_a_shard_of_another_size_is_named() -> None:
    old = summarise_shards(urls(1, 2, 3), [10, 20, 30])
    assert sentence(old, urls(1, 2, 3), [10, 20, 30]) == ""
    assert (
        sentence(old, urls(1, 2, 3), [10, 21, 30]) == "1 shard was changed since in size, time or version: s3://b/x-2"
    )
    long = summarise_shards(urls(*range(500)), [1] * 500)
    assert "their sizes, times or versions differ" in sentence(long, urls(*range(500)), [1] * 499 + [2])


@pytest.mark.parametrize("versions", [None, [10, None, 30], [None] * 3])
def test_unknown_sizes_are_not_compared(versions: list[Any] | None) -> None:
    old = summarise_shards(urls(1, 2, 3), [10, 20, 30])
    assert sentence(old, urls(1, 2, 3), versions) == ""


def test_passwords_and_presigned_queries_do_not_count_and_are_not_shown() -> None:
    first = ["https://user:one@host/a?X-Amz-Date=1&X-Amz-Signature=abc", "http://host/b?part=1"]
    second = ["https://user:two@host/a?X-Amz-Date=2&X-Amz-Signature=def", "http://host/b?part=1"]
    assert sentence(summarise_shards(first), second) == ""
    assert sentence(summarise_shards(first), [second[0], "http://host/b?part=2"]).startswith("1 shard is new")
    assert sentence(summarise_shards(first[1:]), second) == "1 shard is new: https://host/a"
    assert lasting_url("s3://b/odd?name@x") == "s3://b/odd?name@x"


@pytest.mark.parametrize("damage", [{"count": "1"}, {"count": True}, {"count": None}, {"digest": 3}], ids=str)
def test_a_damaged_summary_is_a_difference(damage: dict[str, Any]) -> None:
    assert "stored in the state is damaged" in sentence({**summarise_shards(urls(1)), **damage}, urls(1))
    assert "stored in the state is damaged" in sentence([1], urls(1))


@pytest.mark.parametrize("marks", ["", "!!!", "AAA", "AAAA" * 10_000, 7, ["AAAA"], "AAAAAAAAAAA="], ids=lambda _: "")
def test_damaged_marks_are_not_looked_at(marks: Any) -> None:
    old = {**summarise_shards(urls(1)), "marks": marks}
    assert sentence(old, urls(1, 2)) == "the shard list changed: 1 in the state, 2 now"


def test_a_million_shards_are_summed_up_at_once() -> None:
    shards = [f"s3://some-bucket/path/to/train-{number:07d}.tfrecord" for number in range(1_000_000)]
    sizes = list(range(1_000_000))
    seconds = []
    for _ in range(3):
        started = time.process_time()
        summary: ShardSummary = summarise_shards(shards, sizes)
        seconds.append(time.process_time() - started)
    assert min(seconds) < LIMIT_S, seconds
    assert len(json.dumps(summary)) < 120
