"""``Dataset.from_delta``: tables that deltalake wrote, and logs with features that other libraries write."""

from __future__ import annotations

import pickle
from datetime import date, datetime
from pathlib import Path
from traceback import format_exception
from typing import Any

import pyarrow as pa
import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import (
    ArgumentTypeError,
    CorruptRecordError,
    MissingExtraError,
    NoMatchError,
    PlanError,
    RankError,
    StateMismatchError,
    TableSnapshotError,
)
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.servers import ObjectServer

deltalake: Any = pytest.importorskip("deltalake")

FIRST = pa.table(
    {"id": [1, 2, 3, 4], "part": ["a b", "ä/ö", "a b", None], "small": pa.array([1, 2, None, 4], pa.int32())}
)
SECOND = pa.table({"id": [9], "part": ["x%20=y?#"], "small": pa.array([7], pa.int32()), "new": ["text"]})


def write(url: str, **options: Any) -> None:
    deltalake.write_deltalake(url, FIRST, partition_by=["part"], **options)
    deltalake.write_deltalake(url, SECOND, mode="append", schema_mode="merge", **options)


@pytest.fixture
def table(tmp_path: Path) -> str:
    write(str(tmp_path / "table"))
    return str(tmp_path / "table")


def by_id(dataset: Dataset[Any]) -> list[dict[str, Any]]:
    return sorted(dataset, key=lambda row: int(row["id"]))


def plain(rows: Any) -> list[dict[str, Any]]:
    return [{name: getattr(value, "item", lambda value=value: value)() for name, value in row.items()} for row in rows]


def test_rows_are_those_that_deltalake_reads(table: str) -> None:
    expected = pa.table(deltalake.DeltaTable(table).to_pyarrow_table()).sort_by("id").to_pylist()
    assert plain(by_id(Dataset.from_delta(table))) == expected
    assert [row["part"] for row in expected] == ["a b", "ä/ö", "a b", None, "x%20=y?#"]
    assert expected[0]["new"] is None


def test_a_version_has_its_own_files_and_columns(table: str) -> None:
    assert (
        plain(by_id(Dataset.from_delta(table, version=0)))
        == FIRST.sort_by("id").select(list(by_id(Dataset.from_delta(table, 0))[0])).to_pylist()
    )
    deltalake.DeltaTable(table).delete("id = 2")
    assert [row["id"] for row in by_id(Dataset.from_delta(table))] == [1, 3, 4, 9]
    assert [row["id"] for row in by_id(Dataset.from_delta(table, 1))] == [1, 2, 3, 4, 9]
    with pytest.raises(TableSnapshotError, match="cannot read the log"):
        list(Dataset.from_delta(table, 99))


def test_columns_have_the_order_that_is_asked_for(table: str) -> None:
    assert by_id(Dataset.from_delta(table, columns=["part", "id"]))[-1] == {"part": "x%20=y?#", "id": 9}
    assert {row["part"] for row in Dataset.from_delta(table, columns=["part"])} == {"a b", "ä/ö", None, "x%20=y?#"}
    assert [row["new"] for row in Dataset.from_delta(table, columns=["new"], filters=[("id", "<", 3)])] == [None, None]
    with pytest.raises(PlanError, match=r"version 1 of .*table has no column 'nope'. Its columns are 'id', "):
        list(Dataset.from_delta(table, columns=["nope"]))
    with pytest.raises(PlanError, match="has no column 'nope'"):
        list(Dataset.from_delta(table, filters=[("nope", "=", 1)]))


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([("part", "=", "a b")], [1, 3]),
        ([("part", "!=", "a b"), ("id", ">", 2)], [9]),
        ([[("part", "=", "ä/ö")], [("id", ">=", 4)]], [2, 4, 9]),
        ([[("part", "=", "nowhere"), ("id", ">", 0)], [("new", "=", "text")]], [9]),
        ([("part", "in", ["nowhere"])], []),
        ([("new", "!=", "text")], []),
        ([("small", "<=", 2)], [1, 2]),
        ([("small", "in", [2, 2**70])], [2]),
    ],
)
def test_filters_select_rows_by_partition_and_by_value(table: str, filters: Any, ids: list[int]) -> None:
    assert [row["id"] for row in by_id(Dataset.from_delta(table, filters=filters))] == ids


def test_files_of_excluded_partitions_are_not_opened(table: str) -> None:
    for path in Path(table).rglob("*.parquet"):
        if "a%20b" not in str(path):
            path.unlink()
    assert [row["id"] for row in by_id(Dataset.from_delta(table, filters=[("part", "=", "a b")]))] == [1, 3]
    with pytest.raises(asd.ObjectNotFoundError):
        list(Dataset.from_delta(table, filters=[("id", "=", 1)]))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("date", pa.array([date(2024, 1, 2)])),
        ("time", pa.array([datetime(2024, 1, 2, 3, 4, 5, 6)], pa.timestamp("us"))),
        ("number", pa.array([-5], pa.int16())),
        ("flag", pa.array([True])),
        ("real", pa.array([0.25])),
    ],
)
def test_partition_values_have_the_types_of_their_columns(tmp_path: Path, name: str, values: pa.Array) -> None:
    rows = pa.table({"id": [1], name: values})
    deltalake.write_deltalake(str(tmp_path / "parts"), rows, partition_by=[name])
    deltalake.write_deltalake(str(tmp_path / "plain"), rows)
    (of_parts,), (of_plain,) = (list(Dataset.from_delta(tmp_path / each)) for each in ("parts", "plain"))
    assert of_parts == of_plain
    assert type(of_parts[name]) is type(of_plain[name])


def test_a_binary_partition_column_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "name": pa.array([b"\x01"])})
    deltalake.write_deltalake(str(tmp_path / "parts"), rows, partition_by=["name"])
    with pytest.raises(TableSnapshotError, match="the partition column 'name' is binary"):
        list(Dataset.from_delta(tmp_path / "parts"))


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(str(tmp_path / "table"), pa.schema([("id", pa.int64())]))
    assert list(Dataset.from_delta(tmp_path / "table")) == []


# -- versions and states


def test_a_state_names_the_version_and_a_resumed_run_reads_its_files(table: str) -> None:
    dataset = Dataset.from_delta(table, shuffle_shards=True, seed=3).map(lambda row: int(row["id"]))
    with dataset.open(seed=1) as loader:
        first = [next(loader), next(loader)]
        state = loader.state_dict()
    deltalake.write_deltalake(table, SECOND, mode="append")
    deltalake.DeltaTable(table).optimize.compact()
    (entry, *_) = state["pipeline"]["plan"]
    assert entry == {"op": "from_delta", "args": {"table": repr(table), "version": "1"}}
    with dataset.open(state) as loader:
        assert sorted([*first, *loader]) == [1, 2, 3, 4, 9]
    with pytest.raises(StateMismatchError, match=r"from_delta .*version was 1, is 0"):
        Dataset.from_delta(table, 0, shuffle_shards=True, seed=3).map(lambda row: int(row["id"])).open(state)


def test_a_state_of_a_mixture_names_the_version_of_each_table(tmp_path: Path, table: str) -> None:
    write(str(tmp_path / "other"))
    deltalake.DeltaTable(str(tmp_path / "other")).delete("id = 1")
    both = Dataset.from_delta(table).concatenate(Dataset.from_delta(tmp_path / "other")).map(lambda row: int(row["id"]))
    with both.open() as loader:
        first = [next(loader)]
        state = loader.state_dict()
    for url in (table, str(tmp_path / "other")):
        deltalake.write_deltalake(url, SECOND, mode="append")
    with both.open(state) as loader:
        assert sorted([*first, *loader]) == [1, 2, 2, 3, 3, 4, 4, 9, 9]


def test_runs_resume_at_every_row(table: str) -> None:
    resumes_everywhere(Dataset.from_delta(table, 1, cycle_length=2, block_length=2).shuffle(3, seed=1))
    resumes_everywhere(Dataset.from_delta(table, filters=[("id", ">", 1)], columns=["id", "part"]))


def test_several_ranks_need_a_version_and_then_share_its_rows(table: str) -> None:
    with pytest.raises(RankError, match=r"Pass version= to all of them; the newest is now 1\."):
        Dataset.from_delta(table).open(rank=0, world_size=2)
    with pytest.raises(RankError, match="2 processes"):
        Dataset.from_delta(table).open(rank=0, world_size=1, worker=(1, 2))
    for policy in ("row", "file"):
        found = []
        for rank in range(2):
            options: Any = {"policy": policy, "tail": "drop" if policy == "row" else None}
            with Dataset.from_delta(table, 1, columns=["id"]).open(rank=rank, world_size=2, **options) as loader:
                found += [int(row["id"]) for row in loader]
        assert len(set(found)) == len(found) == (4 if policy == "row" else 5)


def test_a_dataset_can_be_pickled_before_and_after_its_rows_are_fetched(table: str) -> None:
    dataset = pickle.loads(pickle.dumps(Dataset.from_delta(table, 1)))
    with dataset.open() as loader:
        row = next(loader)
        (origin,) = loader.origins(row)
    assert dataset.fetch(origin) == row


def test_a_dataset_inside_of_another_one_is_refused(table: str) -> None:
    nested = Dataset.range(2).flat_map(lambda number: Dataset.from_delta(table, int(number)))
    with pytest.raises(PlanError, match="finds its files only when its dataset is opened by itself"):
        list(nested)


# -- errors and stores


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(NoMatchError, match="there is no Delta table"):
        list(Dataset.from_delta(tmp_path / "nothing"))
    (tmp_path / "x").write_text("x")
    with pytest.raises(NoMatchError, match="there is no Delta table"):
        list(Dataset.from_delta(tmp_path))


def test_a_damaged_log_or_file_is_an_error(table: str) -> None:
    path = next(Path(table).rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptRecordError, match=path.name):
        list(Dataset.from_delta(table))
    log = Path(table) / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text()[:100])
    with pytest.raises(TableSnapshotError, match="deltalake cannot read the log"):
        list(Dataset.from_delta(table))


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    for wrong in ("", None, ["table"]):
        with pytest.raises(ArgumentTypeError, match="url must be"):
            Dataset.from_delta(wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="version must be at least 0"):
        Dataset.from_delta(tmp_path, -1)
    with pytest.raises(ArgumentTypeError, match="version must be an integer"):
        Dataset.from_delta(tmp_path, "1")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="reads local folders, s3:// and gs://, got memory://"):
        Dataset.from_delta("memory://table")
    with pytest.raises(PlanError, match=r"cannot pass storage_options\['config_kwargs'\]"):
        Dataset.from_delta("s3://bucket/table", storage_options={"config_kwargs": {"x": 1}})


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[delta\]"):
        list(Dataset.from_delta(tmp_path))


def test_an_error_of_the_store_shows_no_secrets() -> None:
    options = {"key": "an account", "secret": "very secret", "endpoint_url": "http://127.0.0.1:9", "retry_total_s": 0}
    with pytest.raises(TableSnapshotError, match="s3://bucket/table: deltalake cannot read the log") as raised:
        list(Dataset.from_delta("s3://bucket/table", storage_options=options))
    assert "secret" not in "".join(format_exception(raised.value)).replace("shows_no_secrets", "")


def test_tables_on_s3(s3_endpoint: ObjectServer, tmp_path: Path) -> None:
    options = s3_endpoint.storage_options
    url = "s3://test-bucket/a delta table"
    write(str(tmp_path / "table"))
    for path in (tmp_path / "table").rglob("*"):
        if path.is_file():
            s3_endpoint.put(f"{url}/{path.relative_to(tmp_path / 'table')}", path.read_bytes())
    found = by_id(Dataset.from_delta(url, storage_options=options))
    assert found == by_id(Dataset.from_delta(tmp_path / "table"))
    with pytest.raises(NoMatchError, match="there is no Delta table"):
        list(Dataset.from_delta("s3://test-bucket/nothing", storage_options=options))
