"""An index names shards safely: what it may not name, and what is no index, is refused with the line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data.errors import IndexFileError, NoMatchError, ObjectChangedError, PlanError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import index_file
from aiostream_data.storage.index_file import IndexedShard, choose_shards, format_index, parse_index

INDEX = "s3://bucket/data/index.jsonl"


def index_of(*lines: Any, shards: int | None = None) -> bytes:
    header = {"format": "aiostream-data-index", "version": 1, "shards": len(lines) if shards is None else shards}
    return b"\n".join(json.dumps(line).encode() for line in (header, *lines))


NAMES = st.lists(st.text(alphabet="ab.-~:% é", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join)


@given(st.sets(NAMES, max_size=6), st.sampled_from([INDEX, "/data/index.jsonl", "https://host/d/index.jsonl?sig=x"]))
def test_what_was_written_is_read(names: set[str], index_url: str) -> None:
    root = index_url[: index_url.index("/", 8) + 1] if "://" in index_url else "/"
    shards = [
        IndexedShard(ShardRef(root + folder + name, number, "v" * number), number or None)
        for number, (folder, name) in enumerate(
            (folder, name) for folder in ("data/", "d/", "x/") for name in sorted(names)
        )
    ]
    assert parse_index(index_url, format_index(index_url, shards)) == shards


@pytest.mark.parametrize(
    ("index_url", "url", "whole"),
    [
        (INDEX, "x.bin", "s3://bucket/data/x.bin"),
        (INDEX, "sub/x.bin", "s3://bucket/data/sub/x.bin"),
        (INDEX, "s3://other/x.bin", "s3://other/x.bin"),
        ("https://h/d/i.jsonl?sig=1", "x", "https://h/d/x"),
        ("https://h/d/i.jsonl", "https://h/x?sig=2", "https://h/x?sig=2"),
        ("index.jsonl", "x", "x"),
        ("/d/index.jsonl", "x", "/d/x"),
        ("/d/index.jsonl", "/e/x", "/e/x"),
        ("/d/index.jsonl", "s3://bucket/x", "s3://bucket/x"),
    ],
)
def test_shards_are_named_from_where_the_index_is(index_url: str, url: str, whole: str) -> None:
    ((shard, _),) = parse_index(index_url, index_of({"url": url}))
    assert shard == ShardRef(whole)


@pytest.mark.parametrize(
    ("index_url", "url"),
    [
        (INDEX, "../x"),
        (INDEX, "a/../../x"),
        (INDEX, "a//x"),
        (INDEX, "./x"),
        (INDEX, "/etc/passwd"),
        (INDEX, "~/x"),
        (INDEX, "file:///etc/passwd"),
        (INDEX, "local:///etc/passwd"),
        (INDEX, "simplecache::file:///etc/passwd"),
        (INDEX, "gs://bucket/x"),
        (INDEX, "http://169.254.169.254/latest"),
        (INDEX, ""),
        (INDEX, "a\nb"),
        (INDEX, "a\x00"),
        ("https://h/d/i", "https://other/x"),
        ("https://h/d/i", "http://h/x"),
        ("https://h/d/i", "//other/x"),
        ("/d/index.jsonl", "../x"),
        ("index.jsonl", "~/x"),
    ],
)
def test_an_index_cannot_name_what_is_not_its_own(index_url: str, url: str) -> None:
    with pytest.raises(IndexFileError) as caught:
        parse_index(index_url, index_of({"url": "good"}, {"url": url}))
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 1, "not an index file"),
        (b"\n\n", 1, "not an index file"),
        (b"not json", 1, "not JSON"),
        (b"\xff\xfe", 1, "not JSON"),
        (b"[" * 100_000, 1, "not JSON"),
        (b"[]", 1, "not an index file"),
        (b'{"url": "x"}', 1, "not an index file"),
        (index_of().replace(b"1", b"2"), 1, "version"),
        (b'{"format": "aiostream-data-index", "version": 1}', 1, "number of shards"),
        (index_of({"url": "a"}, {"url": "b"}, shards=3), 3, "truncated"),
        (index_of({"url": "a"}, {"url": "b"}, shards=1), 3, "truncated"),
        (index_of({"url": "a"}, {"url": "b"})[:-3], 3, "not JSON"),
        (index_of({"url": "a"}, {"url": "a"}), 3, "duplicate url"),
        (index_of({"url": "a"}, {"url": "s3://bucket/data/a"}), 3, "duplicate url"),
        (index_of(["a"]), 2, "not an object"),
        (index_of({"url": 1}), 2, "not an object"),
        (index_of({"url": "a", "nbytes": -1}), 2, "nbytes"),
        (index_of({"url": "a", "nbytes": True}), 2, "nbytes"),
        (index_of({"url": "a", "nbytes": 1.5}), 2, "nbytes"),
        (index_of({"url": "a", "nbytes": 1 << 63}), 2, "nbytes"),
        (index_of({"url": "a", "records": "1"}), 2, "records"),
        (index_of({"url": "a", "version": 7}), 2, "version"),
        (index_of({"url": "a", "version": "a\r\nHost: x"}), 2, "version"),
    ],
)
def test_what_is_no_index_is_refused(content: bytes, line: int, reason: str) -> None:
    with pytest.raises(IndexFileError, match=reason) as caught:
        parse_index(INDEX, content)
    assert (caught.value.url, caught.value.line) == (INDEX, line)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_index_or_an_error(content: bytes) -> None:
    for tried in (content, index_of({"url": "a"}) + b"\n" + content):
        try:
            parse_index(INDEX, tried)
        except IndexFileError:
            continue


def test_a_file_too_large_for_an_index_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").write_bytes(index_of({"url": "a"}))
    monkeypatch.setattr(index_file, "MAX_NBYTES", 10)
    with pytest.raises(IndexFileError, match="at most"):
        list(asd.Dataset.from_text(index=tmp_path / "index"))


def test_patterns_choose_from_an_index_as_from_a_listing() -> None:
    shards = [IndexedShard(ShardRef(f"s3://bucket/data/{name}")) for name in ("b1", "a2", "a1", "c/a3")]

    def chosen(*patterns: str) -> list[str]:
        return [shard.url.removeprefix("s3://bucket/data/") for shard in choose_shards(INDEX, shards, patterns)]

    assert chosen() == ["b1", "a2", "a1", "c/a3"]
    assert chosen("s3://bucket/data/a*") == ["a1", "a2"]
    assert chosen("s3a://bucket/data/b1", "s3://bucket/data/*/*") == ["b1", "c/a3"]
    for pattern in ("s3://bucket/data/x", "gs://bucket/data/a*", "s3://bucket/a*"):
        with pytest.raises(NoMatchError, match=r"index\.jsonl"):
            chosen(pattern)


# -- written and read by users ----------------------------------------------------------------


def write_lines(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"line of {number}\n")


def test_a_data_set_is_read_by_its_index_after_both_were_moved(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write_lines(tmp_path / "old", 3)
    assert asd.write_index(f"{tmp_path}/old/*.txt", tmp_path / "old" / "index.jsonl") == 3
    os.rename(tmp_path / "old", tmp_path / "new")
    (tmp_path / "new" / "9.txt").write_text("not in the index\n")
    by_index = asd.Dataset.from_text(index=tmp_path / "new" / "index.jsonl")
    assert list(by_index) == ["line of 0", "line of 1", "line of 2"]
    assert list(asd.Dataset.list_files(index=tmp_path / "new" / "index.jsonl")) == [
        f"{tmp_path}/new/{number}.txt" for number in range(3)
    ]
    assert "index.jsonl" in by_index.explain()


def test_an_index_is_written_of_a_data_set_and_keeps_counts(tmp_path: Path) -> None:
    write_lines(tmp_path, 2)
    dataset = asd.Dataset.from_text(f"{tmp_path}/*.txt").map(str.upper).batch(2)
    asd.write_index(dataset, tmp_path / "i", records={f"{tmp_path}/1.txt": 1})
    found = parse_index(f"{tmp_path}/i", (tmp_path / "i").read_bytes())
    assert [indexed.records for indexed in found] == [None, 1]
    with pytest.raises(PlanError, match="found 0"):
        asd.write_index(asd.Dataset.range(3), tmp_path / "i")


def test_a_shard_that_is_not_what_the_index_says_is_noticed(tmp_path: Path) -> None:
    write_lines(tmp_path, 2)
    asd.write_index(f"{tmp_path}/*.txt", tmp_path / "i")
    (tmp_path / "1.txt").write_text("longer than it was\n")
    with pytest.raises(ObjectChangedError):
        list(asd.Dataset.from_text(index=tmp_path / "i"))
    asd.write_index(f"{tmp_path}/*.txt", tmp_path / "i", versions=True)
    os.utime(tmp_path / "0.txt", ns=(1, 1))
    with pytest.raises(ObjectChangedError):
        list(asd.Dataset.from_text(index=tmp_path / "i"))


def test_a_state_goes_on_with_or_without_the_index(tmp_path: Path) -> None:
    write_lines(tmp_path, 6)
    asd.write_index(f"{tmp_path}/*.txt", tmp_path / "i")
    with asd.Dataset.from_text(f"{tmp_path}/*.txt").open(seed=1) as loader:
        given = [next(iter(loader)) for _ in range(2)]
        state = loader.state_dict()
    with asd.Dataset.from_text(f"{tmp_path}/*.txt", index=tmp_path / "i").open(state, allow=["shards"]) as loader:
        assert given + list(loader) == [f"line of {number}" for number in range(6)]


def test_an_index_is_written_inside_a_running_loop_too(tmp_path: Path) -> None:
    import asyncio

    async def main() -> int:
        return asd.write_index(f"{tmp_path}/*.txt", tmp_path / "i")

    write_lines(tmp_path, 2)
    assert asyncio.run(main()) == 2


def test_an_index_that_cannot_be_one_is_refused_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="one URL"):
        asd.Dataset.from_text(index="s3://bucket/*.jsonl")
    with pytest.raises(PlanError, match="Pass only one of them"):
        asd.Dataset.from_text(asd.Dataset.list_files("x"), index="i")
    with pytest.raises(PlanError, match="no files are given"):
        asd.Dataset.from_text()
