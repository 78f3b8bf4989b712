"""A table of shards equals the list it was made from, in a fraction of the memory."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import (
    ShardTable,
    ShardTableWriter,
    Texts,
    joined_tables,
    shared_prefix,
    sizes_of,
    urls_of,
)

NAMES = st.text(st.characters(), max_size=6)  # with surrogates, as in names of files that are not UTF-8
SHARDS = st.lists(
    st.builds(ShardRef, NAMES, st.none() | st.integers(0, 2**62), st.sampled_from(["", '"a1"', "é"])), max_size=12
)


@given(SHARDS, st.text(max_size=3), st.data())
def test_a_table_equals_the_list_of_its_shards(shards: list[ShardRef], prefix: str, data: st.DataObject) -> None:
    shards = [ShardRef(prefix + shard.url, shard.nbytes, shard.version) for shard in shards]
    table = ShardTable.of(shards, prefix)
    assert table == shards
    assert len(table) == len(shards)
    assert [*urls_of(table)] == [shard.url for shard in shards]
    assert sizes_of(table) == [shard.nbytes for shard in shards]
    start, stop = data.draw(st.integers(-13, 13)), data.draw(st.integers(-13, 13))
    step = data.draw(st.sampled_from([1, 2, -1]))
    part = table[start:stop:step]
    assert list(part) == shards[start:stop:step]
    assert list(part[1:]) == shards[start:stop:step][1:]
    for place in range(-len(shards), len(shards)):
        assert table[place] == shards[place]
    with pytest.raises(IndexError):
        table[len(shards)]


@given(st.lists(SHARDS, max_size=3))
def test_shards_that_are_appended_at_once_are_the_same_as_one_by_one(parts: list[list[ShardRef]]) -> None:
    writer = ShardTableWriter()
    for part in parts:
        sizes = [shard.nbytes or 0 for shard in part]
        writer.extend([shard.url for shard in part], sizes, [shard.version for shard in part])
    assert writer.table() == [ShardRef(shard.url, shard.nbytes or 0, shard.version) for part in parts for shard in part]


def test_a_table_above_four_gigabytes_of_names_has_larger_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiostream_data.rows.shard_table._MOST_SHORT", 5)
    writer = ShardTableWriter()
    for names in (["abc", "d"], ["ef", "g"], ["h"]):
        writer.extend(names, [0] * len(names), [""] * len(names))
    assert list(writer.table().urls) == ["abc", "d", "ef", "g", "h"]


@pytest.mark.parametrize("odd", ["", "é", "\udcff"])
def test_long_lists_of_text_are_read_in_order_from_any_place(odd: str) -> None:
    names = [f"{number}{odd if number == 1500 else ''}" for number in range(5000)]
    texts = urls_of(ShardTable.of([ShardRef(f"data/{name}", 1, "") for name in names], "data/"))
    assert list(texts) == [f"data/{name}" for name in names]
    assert list(texts[1:4000]) == [f"data/{name}" for name in names[1:4000]]
    assert list(texts[4999:][1:]) == []


@given(SHARDS)
def test_a_pickled_table_is_the_same_table(shards: list[ShardRef]) -> None:
    assert pickle.loads(pickle.dumps(ShardTable.of(shards))) == shards


@given(SHARDS)
def test_shards_are_sorted_by_url_and_the_last_of_equal_urls_is_kept(shards: list[ShardRef]) -> None:
    by_url = {shard.url: shard for shard in shards}
    assert ShardTable.of(shards).in_url_order() == [by_url[url] for url in sorted(by_url)]


@given(st.lists(SHARDS, max_size=3))
def test_joined_lists_keep_their_order(parts: list[list[ShardRef]]) -> None:
    tables = [ShardTable.of(part, shared_prefix([shard.url for shard in part])) for part in parts]
    assert joined_tables(tables) == [shard for part in parts for shard in part]
    assert joined_tables(parts) == [shard for part in parts for shard in part]


def test_a_prefix_is_put_before_each_url_without_a_copy() -> None:
    table = ShardTable.of([ShardRef("a", 1, "v"), ShardRef("b")])
    assert table.behind("s3://bucket/") == [ShardRef("s3://bucket/a", 1, "v"), ShardRef("s3://bucket/b")]
    assert table.behind("s3://bucket/").urls.block is table.urls.block


def test_a_table_is_not_equal_to_other_shards_or_other_things() -> None:
    table = ShardTable.of([ShardRef("a", 1)])
    assert table != [ShardRef("a", 2)]
    assert table != [ShardRef("a", 1), ShardRef("b")]
    assert table != 1


def test_the_representation_of_a_table_hides_signatures() -> None:
    assert "secret" not in repr(ShardTable.of([ShardRef("https://h/a?X-Amz-Signature=secret")]))


def test_characters_are_found_in_the_texts_and_in_their_prefix() -> None:
    assert Texts.of(["a", "b?"]).contains_any("@?")
    assert Texts.of(["a"], "s3://key@bucket/").contains_any("@?")
    assert not Texts.of(["a", "ĀŀĿ"]).contains_any("@?")  # no byte of these letters is taken for an ASCII character


def test_a_table_takes_100_bytes_per_shard() -> None:
    count = 20_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        shards = (
            ShardRef(f"s3://bucket/train/{number:07}.tfrecord", number, f'"{number:032x}"') for number in range(count)
        )
        table = ShardTable.of(shards, "s3://bucket/train/")
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(table) == count
    assert held / count < 100
