"""Partitions in the folders of URLs become columns of text: ``year=2024/part-0.parquet``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import parquet

from aiostream_data import Dataset, PlanError
from aiostream_data.formats.hive_partitions import names_of_folders, partitions_of
from aiostream_data.testing.resume import resumes_everywhere

VALUES = ("a/b c", "é:ü", None)


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    """Write one file per value of ``k``, as PyArrow does."""
    table = pa.table({"v": [1, 2, 3], "k": VALUES})
    pyarrow.dataset.write_dataset(
        table, tmp_path / "hv", format="parquet", partitioning=["k"], partitioning_flavor="hive"
    )
    return f"{tmp_path}/hv/**/*.parquet"


def by_v(dataset: Dataset[Any]) -> list[dict[str, Any]]:
    return sorted(dataset, key=lambda row: row["v"])


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("k=a%2Fb%20c/x", {"k": "a/b c"}),
        ("k=__HIVE_DEFAULT_PARTITION__/x", {"k": None}),
        ("s3://bucket/k=a?b/l=1/x", {"k": "a?b", "l": "1"}),
        ("/data/k=a?b/x", {"k": "a?b"}),
        ("/data/k=a#b=c/x", {"k": "a#b=c"}),
        ("k=%FF/l=100%/x", {"k": "%FF", "l": "100%"}),
        ("k%3Dl=1/x", {"k=l": "1"}),
        ("k=/x", {"k": ""}),
        ("file:///k=1/x", {"k": "1"}),
        ("s3://a=b/k=1/x", {"k": "1"}),
        ("https://host/k=a%20b/l=a%252Fb/x?m=1/n=2", {"k": "a b", "l": "a/b"}),
        ("https://host/token=secret/k=1/x", {"k": "1"}),
    ],
)
def test_names_and_values_are_decoded(url: str, found: dict[str, str | None]) -> None:
    assert partitions_of(url) == found


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["k=1/x", "k=2/x"], ("k",)),
        (["a=1/b=2/x"], ("a", "b")),
        (["x"], None),
        (["k=1/x", "x"], None),
        (["k=1/x", "l=1/x"], None),
        (["k=1/new/x"], None),
        (["=1/x"], None),
        ([], None),
    ],
)
def test_folders_are_partitions_if_all_have_the_same_names(paths: list[str], names: tuple[str, ...] | None) -> None:
    assert names_of_folders(paths) == names


def test_partitions_that_pyarrow_wrote_are_read(pattern: str) -> None:
    dataset = Dataset.from_parquet(pattern, partitions=True)
    assert by_v(dataset) == [{"v": number, "k": value} for number, value in enumerate(VALUES, 1)]
    (batch,) = dataset.batch(3)
    assert sorted(map(str, batch["k"])) == sorted(map(str, VALUES))
    resumes_everywhere(dataset)


@pytest.mark.parametrize(
    ("columns", "names"), [(["v", "k"], ["v", "k"]), (["k", "v"], ["k", "v"]), (["v"], ["v", "k"]), (["k"], ["k"])]
)
def test_columns_may_name_partitions(pattern: str, columns: list[str], names: list[str]) -> None:
    rows = list(Dataset.from_parquet(pattern, columns, partitions=True))
    assert [list(row) for row in rows] == [names] * 3
    assert {row["k"] for row in rows} == set(VALUES)


def test_columns_leave_out_partitions_that_they_do_not_name(tmp_path: Path) -> None:
    (tmp_path / "a=1" / "b=2").mkdir(parents=True)
    parquet.write_table(pa.table({"v": [0]}), tmp_path / "a=1" / "b=2" / "x.parquet")
    pattern = f"{tmp_path}/*/*/*.parquet"
    assert list(Dataset.from_parquet(pattern, ["b", "v"], partitions=True)) == [{"b": "2", "v": 0}]
    with pytest.raises(PlanError, match=r"has no column 'c'\. Its columns are 'v', 'a', 'b'"):
        list(Dataset.from_parquet(pattern, ["c"], partitions=True))


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([("k", "=", "é:ü")], [2]),
        ([("k", "!=", "é:ü")], [1]),
        ([("k", "in", ["é:ü", None, "x"])], [2]),
        ([("k", "not in", ["é:ü"])], [1]),
        ([("k", ">", "b")], [2]),
        ([("k", "==", None)], []),
        ([("k", "=", "x")], []),
        ([("k", "=", "é:ü"), ("v", "=", 1)], []),
        ([[("k", "=", "é:ü")], [("v", "=", 3)]], [2, 3]),
        ([[("k", "=", "é:ü"), ("v", "=", 2)], [("k", "=", "x")]], [2]),
    ],
)
def test_filters_may_name_partitions(pattern: str, filters: Any, found: list[int]) -> None:
    dataset = Dataset.from_parquet(pattern, filters=filters, partitions=True)
    assert [row["v"] for row in by_v(dataset)] == found
    resumes_everywhere(dataset)


def test_a_partition_is_compared_with_text_only(pattern: str) -> None:
    with pytest.raises(
        PlanError, match=r"partitions are text, but it compares with 5\. Compare with text, such as '5'"
    ):
        list(Dataset.from_parquet(pattern, filters=[("k", "in", ["x", 5])], partitions=True))


@pytest.mark.parametrize("cycle_length", [1, 3])
def test_files_of_excluded_partitions_are_not_read(tmp_path: Path, cycle_length: int) -> None:
    for part in range(4):
        (tmp_path / f"k={part}").mkdir()
        (tmp_path / f"k={part}" / "x.parquet").write_bytes(b"no Parquet file")
    parquet.write_table(pa.table({"v": [1, 2]}), tmp_path / "k=2" / "x.parquet")
    filters = [("k", "=", "2")]
    dataset = Dataset.from_parquet(
        f"{tmp_path}/*/*.parquet", filters=filters, partitions=True, cycle_length=cycle_length
    )
    assert list(dataset) == [{"v": 1, "k": "2"}, {"v": 2, "k": "2"}]
    assert list(Dataset.from_parquet(tmp_path / "k=1" / "x.parquet", filters=filters, partitions=True)) == []


def test_a_partition_replaces_a_column_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "k=7").mkdir()
    parquet.write_table(pa.table({"k": [5], "v": [1]}), tmp_path / "k=7" / "x.parquet")
    rows = list(Dataset.from_parquet(f"{tmp_path}/*/*.parquet", partitions=True))
    assert rows == [{"v": 1, "k": "7"}]
    assert list(Dataset.from_parquet(f"{tmp_path}/*/*.parquet", filters=[("k", "=", "5")], partitions=True)) == []
