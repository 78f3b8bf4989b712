"""``on_error`` of files with row groups: damaged groups and files are skipped, counted and logged, each alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record, in_groups
from pyarrow import parquet

from aiostream_data import Dataset, Quarantine, Replace, Retry, Skip, write_index
from aiostream_data.errors import CorruptRecordError, ErrorBudgetError, ObjectNotFoundError, PlanError
from aiostream_data.testing.resume import resumes_everywhere

h5py = pytest.importorskip("h5py")

ROWS, GROUP = 20, 5


def numbers(file: int) -> list[int]:
    return list(range(100 * file, 100 * file + ROWS))


def write_parquet(path: Path, rows: Sequence[int]) -> None:
    parquet.write_table(pa.table({"n": rows}), path, row_group_size=GROUP, compression="none", use_dictionary=False)


def write_arrow(path: Path, rows: Sequence[int]) -> None:
    table = pa.table({"n": rows})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table, max_chunksize=GROUP)


def write_array_record(path: Path, rows: Sequence[int]) -> None:
    path.write_bytes(array_record(in_groups([str(row).encode() for row in rows], GROUP)))


def write_hdf5(path: Path, rows: Sequence[int]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("n", data=np.array(rows), chunks=(GROUP,), fletcher32=True)


def write_npy(path: Path, rows: Sequence[int]) -> None:
    np.save(path, np.array(rows))


def write_tokens(path: Path, rows: Sequence[int]) -> None:
    path.write_bytes(np.array(rows, np.uint16).tobytes())


def start_of_group(path: Path, group: int) -> int:
    """Return an offset in the data of a group of a file."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        column = parquet.ParquetFile(path).metadata.row_group(group).column(0)
        return int(column.data_page_offset)
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return int(file["n"].id.get_chunk_info(group).byte_offset)
    if path.suffix == ".arrow":  # a batch follows the schema, and each batch has the same size
        marks = [at for at in range(len(content)) if content.startswith(b"\x04\x22\x4d\x18", at)]
        return marks[group]
    return content.index(str(group * GROUP + 100).encode()) if b"100" in content else _compressed(content, group)


def _compressed(content: bytes, group: int) -> int:
    marks = [at for at in range(len(content)) if content.startswith(b"\x28\xb5\x2f\xfd", at)]
    return marks[2 * group]


WRITERS: dict[str, Callable[[Path, Sequence[int]], None]] = {
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".array_record": write_array_record,
    ".h5": write_hdf5,
    ".npy": write_npy,
    ".bin": write_tokens,
}
IN_GROUPS = (".parquet", ".arrow", ".array_record", ".h5")
READ_TOGETHER = (".arrow", ".array_record", ".h5")
"""Small record batches and chunks are read together, and lost together."""


def dataset_of(kind: str, files: Any, **options: Any) -> Dataset[int]:
    if kind == ".parquet":
        return Dataset.from_parquet(files, **options).map(lambda row: int(row["n"]))
    if kind == ".arrow":
        return Dataset.from_arrow(files, **options).map(lambda row: int(row["n"]))
    if kind == ".array_record":
        return Dataset.from_array_record(files, **options).map(int)
    if kind == ".h5":
        return Dataset.from_hdf5(files, ["n"], **options).map(lambda row: int(row["n"]))
    if kind == ".npy":
        return Dataset.from_npy(files, **options).map(int)
    return Dataset.from_tokens(files, 1, dtype=np.uint16, **options).map(lambda row: int(row[0]))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], list[Path]]:
    def files(kind: str) -> list[Path]:
        paths = [tmp_path / f"{number}{kind}" for number in range(3)]
        for number, path in enumerate(paths):
            WRITERS[kind](path, numbers(number))
        return paths

    return files


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + 8] = bytes(value ^ 0xFF for value in content[at : at + 8])
    path.write_bytes(content)


ALL = [row for file in range(3) for row in numbers(file)]


@pytest.mark.parametrize("kind", IN_GROUPS)
@pytest.mark.parametrize("group", [0, 1, 3])
def test_a_damaged_group_is_skipped_alone(write: Callable[[str], list[Path]], kind: str, group: int) -> None:
    paths = write(kind)
    files = str(paths[0].parent / f"*{kind}")
    assert list(dataset_of(kind, files)) == ALL
    damage(paths[1], start_of_group(paths[1], group))
    with pytest.raises(CorruptRecordError, match=rf"1\{kind}") as raised:
        list(dataset_of(kind, files))
    assert any(note.startswith("to skip this: pass on_error= to the constructor") for note in raised.value.__notes__)
    damaged = numbers(1)[group * GROUP : (group + 1) * GROUP]
    skipping = dataset_of(kind, files, on_error="skip")
    left = list(skipping)
    lost = [row for row in ALL if row not in left]
    assert left == [row for row in ALL if row not in lost]
    assert lost == damaged if kind not in READ_TOGETHER else set(damaged) <= set(lost) <= set(numbers(1))
    with dataset_of(kind, files).open(on_error="skip") as loader:
        assert list(loader) == left
        assert sum(stage.skipped for stage in loader.stats().stages) == 1
    if group == 1:
        resumes_everywhere(dataset_of(kind, files, on_error="skip", cycle_length=2))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_is_something_else_is_skipped_whole(
    write: Callable[[str], list[Path]], tmp_path: Path, kind: str
) -> None:
    paths = write(kind)
    paths[1].write_bytes(b"not a file of this format" * 3)
    files, log = str(tmp_path / f"*{kind}"), tmp_path / "lost.jsonl"
    assert list(dataset_of(kind, files, on_error=Quarantine(log))) == [*numbers(0), *numbers(2)]
    (entry,) = map(json.loads, log.read_text().splitlines())
    assert entry["url"].endswith(f"1{kind}")
    assert (entry["lost"], entry["index"], entry["done"]) == ("shard", 0, "skipped")


def test_the_log_names_the_rows_and_bytes_of_a_lost_group(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    paths = write(".parquet")
    at = start_of_group(paths[2], 2)
    damage(paths[2], at)
    log = tmp_path / "lost.jsonl"
    assert len(list(dataset_of(".parquet", str(tmp_path / "*.parquet"), on_error=Quarantine(log)))) == 55
    (entry,) = map(json.loads, log.read_text().splitlines())
    assert (entry["offset"], entry["lost"], entry["index"], entry["stage"]) == (at, "records", 10, "read_parquet")
    assert 0 < entry["nbytes"] < paths[2].stat().st_size


def test_all_files_share_one_error_budget(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    paths = write(".parquet")
    for path in paths[1:]:
        damage(path, start_of_group(path, 1))
    files = str(tmp_path / "*.parquet")
    assert len(list(dataset_of(".parquet", files, on_error=Skip(max_count=2)))) == 50
    received: list[int] = []
    with (
        dataset_of(".parquet", files, on_error=Skip(max_count=1)).open() as loader,
        pytest.raises(ErrorBudgetError, match=r"2 of \d+ records or files failed in read_parquet") as raised,
    ):
        received.extend(loader)
    assert isinstance(raised.value.__cause__, CorruptRecordError)
    assert received == [row for row in ALL if row < 205 and not 105 <= row < 110]


@pytest.mark.parametrize(
    ("kind", "cycle_length", "before"),
    [(".parquet", 1, (25, 35)), (".parquet", 3, (16, 46)), (".npy", 1, (20, 20)), (".npy", 3, (1, 1))],
)
@pytest.mark.parametrize("losses", [0, 1, 2, 5])
def test_a_budget_is_spent_in_the_order_of_the_rows_and_of_the_epochs(
    write: Callable[[str], list[Path]], tmp_path: Path, kind: str, cycle_length: int, before: Sequence[int], losses: int
) -> None:
    """``before`` has the number of rows of an epoch in front of each of its two losses."""
    paths = write(kind)
    if kind == ".npy":
        for path in paths[1:]:
            path.write_bytes(b"of no format")
    else:
        damage(paths[1], start_of_group(paths[1], 1))
        damage(paths[2], start_of_group(paths[2], 3 if cycle_length == 3 else 0))
    files, log = str(tmp_path / f"*{kind}"), tmp_path / "lost.jsonl"
    epoch = list(dataset_of(kind, files, cycle_length=cycle_length, on_error="skip"))
    source = dataset_of(kind, files, cycle_length=cycle_length, on_error=Skip(max_count=losses)).repeat()
    received: list[int] = []
    with source.open(dead_letters=log) as loader:
        with pytest.raises(ErrorBudgetError) as raised:
            received.extend(loader)
        assert sum(stage.skipped for stage in loader.stats().stages) == losses
    rows = losses // 2 * len(epoch) + before[losses % 2]
    assert received == (epoch * 3)[:rows]
    assert (raised.value.failures, raised.value.rows) == (losses + 1, rows + losses + 1)
    assert len(log.read_text().splitlines() if losses else []) == losses


def test_rows_of_an_epoch_are_counted_for_a_rate_before_the_losses_behind_them(tmp_path: Path) -> None:
    for file in range(3):
        write_parquet(tmp_path / f"{file}.parquet", range(1000 * file, 1000 * file + 1000))
    path = tmp_path / "2.parquet"
    for group in (10, 20, 30):
        damage(path, start_of_group(path, group))
    source = dataset_of(".parquet", str(tmp_path / "*"), on_error=Skip(max_rate=0.001))  # 2 of 2,150 rows
    received: list[int] = []
    with source.open() as loader, pytest.raises(ErrorBudgetError, match="3 of 2143 records"):
        received.extend(loader)
    assert received[-1] == 2149


def test_rows_of_all_open_files_count_for_a_rate(tmp_path: Path) -> None:
    for file in range(4):
        table = pa.table({"n": range(10_000 * file, 10_000 * file + 9_000)})
        parquet.write_table(table, tmp_path / f"{file}.parquet", row_group_size=10, compression="none")
    path = tmp_path / "3.parquet"
    for group in range(895, 900):
        damage(path, start_of_group(path, group))
    for cycle_length in (1, 4):
        rows = dataset_of(".parquet", str(tmp_path / "*"), on_error=Skip(max_rate=0.0004), cycle_length=cycle_length)
        assert sum(1 for _ in rows) == 35_950


@pytest.mark.parametrize("kind", IN_GROUPS)
def test_a_shuffle_of_rows_beside_a_damaged_group_resumes_everywhere(
    write: Callable[[str], list[Path]], tmp_path: Path, kind: str
) -> None:
    paths = write(kind)
    damage(paths[1], start_of_group(paths[1], 1))
    rows = dataset_of(kind, str(tmp_path / f"*{kind}"), on_error=Skip(max_count=3), cycle_length=2)
    resumes_everywhere(rows.shuffle(10, seed=1).repeat(2))


def test_retries_come_before_the_error_or_the_loss(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    paths = write(".parquet")
    damage(paths[0], start_of_group(paths[0], 0))
    files = str(tmp_path / "*.parquet")
    with (
        dataset_of(".parquet", files, on_error=Retry(2, backoff_s=0.0)).open() as loader,
        pytest.raises(CorruptRecordError),
    ):
        list(loader)
    with dataset_of(".parquet", files, on_error=Retry(2, backoff_s=0.0, then="skip")).open() as loader:
        assert list(loader) == ALL[GROUP:]
        assert sum(stage.retries for stage in loader.stats().stages) == 2


def test_a_file_of_an_index_that_is_gone_is_skipped(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    paths = write(".parquet")
    index = tmp_path / "index.jsonl"
    write_index(str(tmp_path / "*.parquet"), index)
    paths[1].unlink()
    with pytest.raises(ObjectNotFoundError):
        list(dataset_of(".parquet", None, index=index))
    assert list(dataset_of(".parquet", None, index=index, on_error="skip")) == [*numbers(0), *numbers(2)]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_named_file_that_is_missing_is_skipped_alone(
    write: Callable[[str], list[Path]], tmp_path: Path, kind: str
) -> None:
    paths = write(kind)
    paths[1].unlink()
    files, left, log = list(map(str, paths)), [*numbers(0), *numbers(2)], tmp_path / "lost.jsonl"
    with pytest.raises(ObjectNotFoundError, match=rf"1\{kind}"):
        list(dataset_of(kind, files))
    assert list(dataset_of(kind, files, on_error=Quarantine(log))) == left
    (entry,) = map(json.loads, log.read_text().splitlines())
    assert (entry["url"].endswith(f"1{kind}"), entry["lost"], entry["done"]) == (True, "shard", "skipped")
    with dataset_of(kind, files).open(on_error="skip") as loader:
        assert list(loader) == left
        assert sum(stage.skipped for stage in loader.stats().stages) == 1
    resumes_everywhere(dataset_of(kind, files, on_error="skip", shuffle_shards=True, seed=3))


def test_missing_files_are_skipped_behind_operators_on_their_names_and_by_processes(
    write: Callable[[str], list[Path]], tmp_path: Path
) -> None:
    paths = write(".parquet")
    paths[1].unlink()
    names = Dataset.list_files(list(map(str, paths)))
    with pytest.raises(ObjectNotFoundError):
        list(names)
    left = [*numbers(0), *numbers(2)]
    assert list(dataset_of(".parquet", names.skip(1), on_error="skip")) == numbers(2)
    assert sorted(dataset_of(".parquet", names.shuffle(seed=1).repeat(2), on_error="skip")) == sorted(2 * left)
    rows = dataset_of(".parquet", list(map(str, paths)), on_error="skip")
    assert list(rows.in_subprocess()) == left
    for rank in range(2):
        with rows.open(rank=rank, world_size=2) as loader:
            assert set(loader) < set(left)


def test_a_missing_file_is_a_loss_of_the_budget_and_no_file_at_all_is_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0.parquet", numbers(0))
    missing = [str(tmp_path / f"{number}.parquet") for number in range(1, 3)]
    with pytest.raises(ErrorBudgetError, match="2 of"):
        list(dataset_of(".parquet", [str(tmp_path / "0.parquet"), *missing], on_error=Skip(max_count=1)))
    with pytest.raises(ObjectNotFoundError, match=r"1\.parquet"):
        list(dataset_of(".parquet", missing, on_error="skip"))


def test_the_policy_is_no_part_of_the_pipeline(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    write(".parquet")
    files = str(tmp_path / "*.parquet")
    before, after = Dataset.from_parquet(files), Dataset.from_parquet(files, on_error="skip")
    assert before.fingerprint() == after.fingerprint()
    with before.open() as loader:
        next(loader)
        state = loader.state_dict()
    with after.open(state) as loader:
        assert len(list(loader)) == 59


def test_the_policy_of_open_reaches_files_that_several_processes_read(
    write: Callable[[str], list[Path]], tmp_path: Path
) -> None:
    paths = write(".parquet")
    damage(paths[1], start_of_group(paths[1], 0))
    rows = Dataset.from_parquet(str(tmp_path / "*.parquet")).in_subprocess(workers=2)
    with rows.open(on_error="skip") as loader:
        assert len(list(loader)) == 55


def test_policies_of_sources_are_checked(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"on_error of a source cannot be Replace"):
        Dataset.from_parquet("x", on_error=Replace({}))
    with pytest.raises(PlanError, match="on_error must be"):
        Dataset.from_delta("x", on_error="ignore")  # type: ignore[arg-type]


def test_damaged_data_files_of_tables_are_skipped(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for file in range(3):
        deltalake.write_deltalake(str(tmp_path), pa.table({"n": numbers(file)}), mode="append")
    rows = Dataset.from_delta(str(tmp_path), on_error="skip").map(lambda row: int(row["n"]))
    assert sorted(rows) == ALL
    path = sorted(tmp_path.glob("*.parquet"))[0]
    lost = parquet.read_table(path)["n"].to_pylist()
    path.write_bytes(b"PAR1" * 20)
    assert sorted([*rows, *lost]) == ALL


def test_any_format_takes_the_policy(write: Callable[[str], list[Path]], tmp_path: Path) -> None:
    paths = write(".parquet")
    damage(paths[0], start_of_group(paths[0], 0))
    assert len(list(Dataset.open_any(tmp_path, on_error="skip"))) == 55
