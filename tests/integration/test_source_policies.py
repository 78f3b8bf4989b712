"""``on_error`` of sources: budgets, logs and further attempts, and what is never skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset, Quarantine, Replace, Retry, Skip
from aiostream_data._engine.flow.merge import Merge
from aiostream_data.errors import (
    AccessDeniedError,
    ChecksumError,
    CorruptRecordError,
    DeadLetterError,
    ErrorBudgetError,
    NoMatchError,
    ObjectChangedError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    StoreBusyError,
    StoreUnreachableError,
)
from aiostream_data.failing.dead_letter_log import read_entries
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.rows.records import Chunk
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.testing.fault_store import FaultStore
from aiostream_data.testing.faults import Fault, Rule

SOURCES: dict[str, Callable[..., Dataset[Any]]] = {
    "from_tfrecord": lambda **options: Dataset.from_tfrecord("x", **options),
    "from_text": lambda **options: Dataset.from_text("x", **options),
    "from_fixed_length": lambda **options: Dataset.from_fixed_length("x", 4, **options),
    "from_files": lambda **options: Dataset.from_files("x", **options),
}
PAYLOAD, HEADER = 14, 3
"""A byte of a record's frame to damage."""


def tfrecords(name: str, rows: int = 20, damaged: dict[int, int] | None = None) -> bytes:
    """Return records that say which they are, some with a damaged byte."""
    frames = [bytearray(frame(f"{name} {row}".encode() * 3)) for row in range(rows)]
    for row, place in (damaged or {}).items():
        frames[row][place] ^= 1
    return b"".join(frames)


def rows_of(dataset: Dataset[bytes], **options: Any) -> list[str]:
    with dataset.open(**options) as loader:
        return list(map(short, loader))


def short(record: bytes) -> str:
    return record[: len(record) // 3].decode()


def named(name: str, *rows: int) -> list[str]:
    return [f"{name} {row}" for row in rows]


@pytest.fixture
def store(memory_objects: None) -> Iterator[FaultStore]:
    """``faulty://set/a`` to ``c``, with 20 records each; set rules for faults."""
    for name in "abc":
        memory.put(f"memory://set/{name}", tfrecords(name))
    faulty = FaultStore(MemoryStore())
    register_store("faulty", lambda options, run_blocking: faulty)
    yield faulty
    register_store("faulty", None)


OPTIONS = {"retry_attempts": 1}


def faulty(**options: Any) -> Dataset[bytes]:
    return Dataset.from_tfrecord("faulty://set/*", storage_options=OPTIONS, **options)


# -- what is refused


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("policy", [Replace(b""), Retry(2, then=Replace(b""))])
def test_a_source_cannot_replace_what_it_lost(name: str, policy: Any) -> None:
    with pytest.raises(PlanError, match="on_error of a source cannot be Replace"):
        SOURCES[name](on_error=policy)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("policy", ["ignore", 3, Skip])
def test_what_is_no_policy_is_refused(name: str, policy: Any) -> None:
    with pytest.raises(PlanError, match="on_error"):
        SOURCES[name](on_error=policy)


@pytest.mark.parametrize("name", SOURCES)
def test_the_plan_shows_the_policy(name: str) -> None:
    assert "on_error=Skip(max_count=3, max_rate=None)" in SOURCES[name](on_error=Skip(max_count=3)).explain()
    assert "on_error" not in SOURCES[name]().explain()


# -- the policy of open()


def test_the_policy_of_open_holds_for_sources_that_have_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD}))
    source = Dataset.from_tfrecord(tmp_path / "a")
    left = named("a", *(row for row in range(20) if row != 4))
    assert rows_of(source, on_error="skip") == left
    assert rows_of(source, on_error=Retry(1, backoff_s=0.0, then="skip")) == left
    assert rows_of(source.prefetch(2), on_error=Quarantine(tmp_path / "own.jsonl")) == left
    assert len(list(read_entries(tmp_path / "own.jsonl"))) == 1
    for policy in (Replace(b""), Retry(1, backoff_s=0.0, then=Replace(b"")), "raise", None):
        with pytest.raises(CorruptRecordError):
            rows_of(source, on_error=policy)
    with pytest.raises(CorruptRecordError):
        rows_of(Dataset.from_tfrecord(tmp_path / "a", on_error="raise"), on_error="skip")


# -- budgets and logs


@pytest.mark.parametrize("memory_limit", ["300KB", None])
@pytest.mark.parametrize("cycle_length", [1, 2])
def test_one_loss_more_than_the_budget_is_an_error_behind_the_rows_before_it(
    tmp_path: Path, cycle_length: int, memory_limit: Any
) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD, 15: HEADER}))
    (tmp_path / "b").write_bytes(tfrecords("b", damaged={3: PAYLOAD, 12: PAYLOAD}))
    log = tmp_path / "dead.jsonl"
    source = Dataset.from_tfrecord(
        [tmp_path / "a", tmp_path / "b"], cycle_length=cycle_length, on_error=Skip(max_count=2)
    )
    whole = rows_of(Dataset.from_tfrecord([tmp_path / "a", tmp_path / "b"], cycle_length=cycle_length, on_error="skip"))
    given: list[str] = []
    with (
        leaves_nothing(),
        pytest.raises(ErrorBudgetError, match=r"CorruptRecordError.*payload checksum mismatch") as caught,
        source.open(dead_letters=log, memory_limit=memory_limit) as loader,
    ):
        given.extend(map(short, loader))
    rows = {1: 21, 2: 23}[cycle_length]  # in front of b 3, or of b 12
    assert given == whole[:rows]
    assert (caught.value.failures, caught.value.rows) == (3, rows + 3)
    assert isinstance(caught.value.__cause__, CorruptRecordError)
    assert len(list(read_entries(log))) == 2
    del caught


@pytest.mark.parametrize(
    ("policy", "budget"),
    [
        (Skip(max_count=1), "max_count=1"),
        (Skip(max_rate=0.0015), "max_rate=0.0015 of the records (1 of the first 1,000)"),
        (Skip(max_count=1, max_rate=0.5), "max_count=1 and max_rate=0.5 of the records (500 of the first 1,000)"),
        (Quarantine("own.jsonl", max_count=1), "max_count=1"),
        (Retry(1, backoff_s=0.0, then=Skip(max_rate=0.001)), "max_rate=0.001 of the records (1 of the first 1,000)"),
    ],
)
def test_a_spent_budget_is_told_as_it_was_written_and_counts_a_file_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Any, budget: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(tfrecords("a", damaged={4: PAYLOAD}))
    source = Dataset.from_tfrecord(["a", "gone"], on_error=policy)
    with pytest.raises(ErrorBudgetError) as caught:
        rows_of(source)
    said = f"2 of 21 records or files failed in read_tfrecord, but on_error allows {budget}. The last error was "
    assert str(caught.value).startswith(said)
    numbers = Dataset.range(30).map(lambda number: 1 // (number % 9), on_error=Skip(max_count=1))
    with pytest.raises(
        ErrorBudgetError, match=r"2 of 10 records failed in map, but on_error allows max_count=1\. The la"
    ):
        list(numbers)
    del caught


def test_a_rate_counts_the_rows_of_all_epochs(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", 500, damaged={100: PAYLOAD, 200: PAYLOAD}))
    source = Dataset.from_tfrecord(tmp_path / "a", on_error=Skip(max_rate=0.005)).repeat(8)
    assert len(rows_of(source)) == 8 * 498  # two of each five hundred
    strict = Dataset.from_tfrecord(tmp_path / "a", on_error=Skip(max_rate=0.0049)).repeat(8)
    with pytest.raises(ErrorBudgetError) as caught:
        rows_of(strict)
    assert (caught.value.failures, caught.value.rows) == (6, 1201)
    del caught


def test_inner_sources_of_one_place_share_a_budget_and_a_log(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(tfrecords(name, 5, damaged={2: PAYLOAD}))
    log, own = tmp_path / "dead.jsonl", tmp_path / "own.jsonl"
    names = Dataset.list_files(str(tmp_path / "[a-d]"))
    limited = names.flat_map(lambda name: Dataset.from_tfrecord(name, on_error=Skip(max_count=2)))
    with pytest.raises(ErrorBudgetError) as caught:
        rows_of(limited, dead_letters=log)
    assert caught.value.failures in (3, 4)  # sources are read ahead: which of them spends the budget is not known
    del caught
    # The log has the losses before the source that spent the budget, which is the second or the third.
    assert {Path(entry["url"]).name for entry in read_entries(log)} in ({"a"}, {"a", "b"})
    quarantined = names.interleave(lambda name: Dataset.from_tfrecord(name, on_error=Quarantine(own)), cycle_length=2)
    assert len(rows_of(quarantined, dead_letters=tmp_path / "none")) == 16
    assert sorted(Path(entry["url"]).name for entry in read_entries(own)) == list("abcd")
    assert not (tmp_path / "none").exists()


def test_what_the_log_says_of_a_loss(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD, 9: HEADER})[:-3])
    log = tmp_path / "dead.jsonl"
    size = len(frame(b"a 0" * 3))
    rows_of(Dataset.from_tfrecord(tmp_path / "a", on_error="skip"), dead_letters=log, seed=5)
    record, header, rest = read_entries(log)
    assert Path(record["url"]) == tmp_path / "a"
    assert (record["offset"], record["nbytes"], record["lost"], record["index"]) == (4 * size, size, "records", 4)
    assert record["error"].endswith("payload checksum mismatch")
    assert (record["stage"], record["nth"], record["epoch"], record["seed"]) == ("read_tfrecord", 0, 0, 5)
    assert record["done"] == "skipped"
    assert (header["offset"], header["nbytes"]) == (9 * size, size)
    assert header["error"].endswith("length checksum mismatch")
    assert (rest["nbytes"], rest["lost"], rest["index"]) == (None, "rest of the shard", 19)


def test_the_log_names_the_stage_that_lost_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD}))
    (tmp_path / "t").write_bytes(b"good\n\xff\n")
    log = tmp_path / "dead.jsonl"
    records = Dataset.from_tfrecord(tmp_path / "a").map(len)
    both = records.concatenate(Dataset.from_tfrecord(tmp_path / "a").map(len)).concatenate(
        Dataset.from_text(tmp_path / "t").map(len)
    )
    with both.open(on_error="skip", dead_letters=log) as loader:
        assert len(list(loader)) == 39
        names = {stage.name: stage.skipped for stage in loader.stats().stages}
    assert [(entry["stage"], entry["nth"]) for entry in read_entries(log)] == [
        ("read_tfrecord", 0),
        ("read_tfrecord", 1),
        ("read_text", 0),
    ]
    assert names["read_text"] == 1


def test_replay_leaves_out_what_sources_lost(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD}))
    log = tmp_path / "dead.jsonl"
    source = Dataset.from_tfrecord(tmp_path / "a")
    rows_of(source, on_error="skip", dead_letters=log)
    with pytest.raises(DeadLetterError, match="only losses of sources"):
        source.replay(log)
    failing = source.map(lambda record: record * (1 // (record != b"a 7" * 3)))
    rows_of(failing, on_error="skip", dead_letters=log)
    with pytest.warns(UserWarning, match="skips 1 entries"):
        again = source.map(bytes).replay(log)
    assert rows_of(again) == ["a 7"]


# -- files that are missing


def test_files_that_are_named_and_missing_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", 2))
    (tmp_path / "c").write_bytes(tfrecords("c", 2))
    files = [str(tmp_path / name) for name in "abc"]
    left, log = named("a", 0, 1) + named("c", 0, 1), tmp_path / "dead.jsonl"
    with pytest.raises(ObjectNotFoundError):
        rows_of(Dataset.from_tfrecord(files))
    with leaves_nothing():
        assert rows_of(Dataset.from_tfrecord(files, on_error="skip"), dead_letters=log) == left
    (entry,) = read_entries(log)
    assert (entry["url"], entry["lost"], entry["offset"], entry["nbytes"]) == (files[1], "shard", 0, None)
    assert "ObjectNotFoundError" in entry["error"]
    names = Dataset.from_tensor_slices(files)
    assert rows_of(Dataset.from_tfrecord(names, on_error="skip"), dead_letters=log) == left
    inner = names.flat_map(lambda name: Dataset.from_tfrecord(name, on_error="skip"))
    with leaves_nothing():
        assert rows_of(inner, dead_letters=log) == left
    whole = Dataset.from_files(files, on_error="skip").map(lambda file: Path(file["url"]).name)
    assert list(whole) == ["a", "c"]


def test_files_that_an_index_names_and_that_are_missing_are_skipped(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.tfrecord").write_bytes(tfrecords(name, 2))
    asd.write_index(str(tmp_path / "*.tfrecord"), tmp_path / "index")
    (tmp_path / "b.tfrecord").unlink()
    assert rows_of(Dataset.from_tfrecord(index=tmp_path / "index", on_error="skip")) == named("a", 0, 1) + named(
        "c", 0, 1
    )


def test_files_that_vanish_after_they_were_listed_are_skipped(store: FaultStore) -> None:
    store.set_rules(Rule(Fault(status=404), kind="get", key="set/b"))
    with pytest.raises(ObjectNotFoundError):
        rows_of(faulty())
    with leaves_nothing():
        assert rows_of(faulty(on_error="skip", cycle_length=3)) == [
            name for row in range(20) for name in (f"a {row}", f"c {row}")
        ]


def test_a_pattern_that_matches_nothing_and_names_that_are_all_wrong_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", 2))
    with pytest.raises(NoMatchError):
        Dataset.from_tfrecord(str(tmp_path / "x*"), on_error="skip").open()
    with pytest.raises(NoMatchError):
        Dataset.from_tfrecord([str(tmp_path / "a"), str(tmp_path / "x*")], on_error="skip").open()
    with pytest.raises(ObjectNotFoundError):
        Dataset.from_tfrecord([str(tmp_path / "x"), str(tmp_path / "y")], on_error="skip").open()
    with pytest.raises(ObjectNotFoundError):
        Dataset.from_tfrecord(str(tmp_path / "x"), on_error="skip").open()


NEVER: dict[str, tuple[Fault, type[StorageError]]] = {
    "refused": (Fault(status=403), AccessDeniedError),
    "busy": (Fault(status=503), StoreBusyError),
    "gone": (Fault(reset_at="start"), StoreUnreachableError),
    "changed": (Fault(change="before"), ObjectChangedError),
}


@pytest.mark.parametrize("policy", ["skip", Retry(1, backoff_s=0.0, then="skip")])
@pytest.mark.parametrize("name", NEVER)
def test_what_concerns_more_than_one_shard_is_never_skipped(store: FaultStore, name: str, policy: Any) -> None:
    fault, error = NEVER[name]
    store.set_rules(Rule(fault, kind="get", key="set/b"))
    given: list[str] = []
    with leaves_nothing(), pytest.raises(error), faulty(on_error=policy).open() as loader:
        given.extend(map(short, loader))
    assert given == named("a", *range(20))


def test_a_bucket_that_is_missing_is_never_skipped() -> None:
    from aiostream_data._engine.sources.shard_damage import damage_of

    missing = ObjectNotFoundError("s3://b/x", "bucket 'b' does not exist")
    assert damage_of(missing, delivers_later=True) is missing
    missing.is_bucket = True
    assert damage_of(missing, delivers_later=True) is None


# -- further attempts


def test_damage_is_read_again_as_often_as_the_policy_says(store: FaultStore) -> None:
    spoiled = Rule(Fault(corrupt_at=500), kind="get", key="set/b", times=2)
    store.set_rules(spoiled)
    whole = named("a", *range(20)) + named("b", *range(20)) + named("c", *range(20))
    with faulty(on_error=Retry(2, backoff_s=0.0)).open() as loader:
        assert list(map(short, loader)) == whole
        assert loader.stats().stages[0].retries == 2
    store.set_rules(spoiled)
    with pytest.raises(CorruptRecordError):
        rows_of(faulty(on_error=Retry(1, backoff_s=0.0)))


def test_damage_that_stays_is_skipped_after_the_last_attempt(store: FaultStore, tmp_path: Path) -> None:
    memory.put("memory://set/b", tfrecords("b", damaged={3: PAYLOAD, 7: HEADER}))
    log = tmp_path / "dead.jsonl"
    with faulty(on_error=Retry(2, backoff_s=0.0, then=Quarantine(log))).open() as loader:
        rows = list(map(short, loader))
        stage = loader.stats().stages[0]
    assert rows == named("a", *range(20)) + named("b", *(set(range(20)) - {3, 7})) + named("c", *range(20))
    assert (stage.retries, stage.skipped) == (2, 2)  # once there is damage, the rest of the shard is read without
    assert len(list(read_entries(log))) == 2


def test_a_missing_file_is_looked_for_again(store: FaultStore) -> None:
    store.set_rules(Rule(Fault(status=404), kind="get", key="set/b", times=2))
    with faulty(on_error=Retry(3, backoff_s=0.0, then="skip")).open() as loader:
        assert len(list(loader)) == 60
        assert loader.stats().stages[0].retries == 2


# -- whole files, and what is checked first


def test_bytes_that_are_not_what_the_store_has_are_skipped_only_where_no_row_was_given(
    store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(shard: Any, start: int, buffer: memoryview) -> None:
        await MemoryStore.read_into(store.inner, shard, start, buffer)  # type: ignore[arg-type]
        if shard.url.endswith("b"):
            raise ChecksumError(shard.url, "crc32c", "00", "01")

    monkeypatch.setattr(store.inner, "read_into", wrong)
    with pytest.raises(ChecksumError):
        rows_of(faulty(on_error="skip"))
    whole = Dataset.from_files("faulty://set/*", storage_options=OPTIONS, on_error="skip")
    with leaves_nothing():
        assert [file["url"][-1] for file in whole] == ["a", "c"]


# -- the rest


def test_a_signed_url_does_not_reach_the_log(tmp_path: Path, http_objects: Any) -> None:
    url = http_objects.put("/a", tfrecords("a", 4, damaged={2: PAYLOAD})) + "?X-Amz-Signature=hush&x=1"
    log = tmp_path / "dead.jsonl"
    assert rows_of(Dataset.from_tfrecord(url, on_error="skip"), dead_letters=log) == named("a", 0, 1, 3)
    assert "hush" not in log.read_text()


def test_a_state_of_a_run_that_skipped_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tfrecords("a", damaged={4: PAYLOAD}))
    source = Dataset.from_tfrecord(tmp_path / "a", on_error="skip")
    with source.open() as loader:
        for _ in zip(range(7), loader, strict=False):
            pass
        state = loader.state_dict()
    assert json.dumps(state["position"]).count(", 1]") == 1, "the loss in front of the place stands in the state"
    with source.open(state) as loader:
        assert list(map(short, loader)) == named("a", *range(8, 20))
    with Dataset.from_tfrecord(tmp_path / "a").open(state) as loader:  # what was passed stays passed
        assert list(map(short, loader)) == named("a", *range(8, 20))


@pytest.mark.parametrize("every", [2, 7, 100])
def test_rows_between_many_losses_stay_together(every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = [], Merge._load

    def noted(merge: Merge, slot: int, chunk: Chunk | None) -> None:
        loaded.append(0 if chunk is None else len(chunk))
        load(merge, slot, chunk)

    monkeypatch.setattr(Merge, "_load", noted)
    path = tmp_path / "x"
    path.write_bytes(tfrecords("x", rows := 5_000, dict.fromkeys(range(0, rows, every), PAYLOAD)))
    given = rows_of(Dataset.from_tfrecord(path, on_error="skip"))
    assert given == named("x", *(row for row in range(rows) if row % every))
    assert len(loaded) < 60, loaded
