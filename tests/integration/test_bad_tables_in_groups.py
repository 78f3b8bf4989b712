"""One bad file among small files with row groups: files read in groups have the outcome that each would have alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from groups_or_alone import alone, check_both_ways, grouped, outcome
from leaks import leaves_nothing
from many_shards import empty, remove, replace_by_folder, replace_by_pipe, truncate

from aiostream_data import ChecksumError, Dataset, ErrorBudgetError, Retry, Skip, TableSchemaError
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.resume import resumes_everywhere

FILES = 40
BAD = 13
"""Number of the bad file, in the middle of a group."""


pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def table(number: int) -> pa.Table:
    rows = range(1 + number % 4)
    names = [None if (number + row) % 5 == 0 else f"name {number} {row}" for row in rows]
    return pa.table({"id": [100 * number + row for row in rows], "name": pa.array(names, pa.string())})


def write_npy(path: Path, rows: pa.Table) -> None:
    np.save(path, rows["id"].to_numpy())


def write_parquet(path: Path, rows: pa.Table) -> None:
    pyarrow.parquet.write_table(rows, path, row_group_size=max(2, len(rows) // 4))


def write_arrow(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=max(2, len(rows) // 4))


Way = Callable[[], AbstractContextManager[Any]]
WAYS: list[tuple[Way, Way]] = [(grouped, alone), (alone, grouped)]
WRITE: dict[str, Callable[[Path, pa.Table], None]] = {
    "npy": write_npy,
    "parquet": write_parquet,
    "arrow": write_arrow,
}


def source(name: str, files: Any, **options: Any) -> Dataset[Any]:
    return getattr(Dataset, f"from_{name}")(files, **options)  # type: ignore[no-any-return]


def write_files(folder: Path, name: str, count: int = FILES) -> list[Path]:
    paths = [folder / f"{number:04}.{name}" for number in range(count)]
    for number, path in enumerate(paths):
        WRITE[name](path, table(number))
    return paths


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    data[-5] ^= 0x40
    path.write_bytes(data)


def enlarge(path: Path) -> None:
    """Write a file that is not small."""
    count = 300_000
    WRITE[path.suffix[1:]](path, pa.table({"id": np.arange(count), "name": pa.array(["x" * 30] * count)}))


def change_type(path: Path) -> None:
    """Write a file with another type of a column."""
    WRITE[path.suffix[1:]](path, pa.table({"id": [0.5, 1.5], "name": ["a", "b"]}))


DAMAGE: list[Callable[[Path], None]] = [truncate, empty, corrupt, remove, replace_by_pipe, replace_by_folder, enlarge]
POLICIES: list[Any] = [None, Retry(1, backoff_s=0.0), "skip"]
READING: list[dict[str, Any]] = [
    {"cycle_length": 1},
    {"cycle_length": 3, "block_length": 2},
    {"cycle_length": 30},
    {"cycle_length": 2, "shuffle_shards": True, "seed": 3},
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", WRITE)
def test_a_bad_file_has_the_same_outcome_as_alone(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_files(folder, name)
    damage(paths[BAD])
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    start = DAMAGE.index(damage)
    for number in range(start, start + len(POLICIES)):
        policy, reading = POLICIES[number % len(POLICIES)], READING[number % len(READING)]
        check_both_ways(source(name, files, on_error=policy, **reading), tmp_path / "log.jsonl")


def test_a_file_of_a_group_counts_against_the_error_budget(tmp_path: Path) -> None:
    """The number of rows in the error depends on what was read ahead."""
    paths = write_files(tmp_path, "npy")
    truncate(paths[BAD])
    dataset = source("npy", f"{tmp_path}/*.npy", on_error=Skip(max_count=0))
    with grouped():
        found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        expected = outcome(dataset, tmp_path / "log.jsonl")
    assert found.rows == expected.rows
    assert found.error is not None
    assert expected.error is not None
    assert found.error[0] is expected.error[0] is ErrorBudgetError


@pytest.mark.parametrize("name", WRITE)
def test_a_file_with_other_columns_is_named_in_its_turn(tmp_path: Path, name: str) -> None:
    paths = write_files(tmp_path, name)
    change_type(paths[BAD])
    dataset = source(name, f"{tmp_path}/*")
    with grouped() as sizes:
        found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        expected = outcome(dataset, tmp_path / "log.jsonl")
    assert max(sizes) > 1
    assert found.error is not None
    assert found.error[0] is TableSchemaError
    assert paths[BAD].name in found.error[1]
    assert found.rows == expected.rows


@pytest.mark.parametrize("name", WRITE)
def test_several_bad_files_are_skipped_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_files(folder, name)
    for number, damage in enumerate(DAMAGE):
        damage(paths[1 + 5 * number])
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    dataset = source(name, files, on_error=Retry(1, backoff_s=0.0, then="skip"))
    assert check_both_ways(dataset, tmp_path / "log.jsonl").error is None


@pytest.mark.parametrize("given", [0, 1, 3, 4, 8, 13, 39])
def test_all_files_before_a_failing_input_are_delivered(tmp_path: Path, given: int) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = [str(path) for path in write_files(folder, "npy")]

    def named(number: int) -> str:
        if number == given:
            raise ValueError("no more names")
        return paths[number]

    dataset = source("npy", Dataset.range(FILES).map(named), cycle_length=2)
    with grouped():
        found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        expected = outcome(dataset, tmp_path / "log.jsonl")
    assert found.rows == expected.rows
    assert found.error == expected.error
    assert found.error is not None


def test_large_files_are_not_asked_for_their_sizes_again_and_again(tmp_path: Path) -> None:
    with fault_server("s3") as server:
        data = io.BytesIO()
        np.save(data, np.zeros((300, 1024)))
        urls = [server.put(f"bucket/{number:02}.npy", data.getvalue()) for number in range(40)]
        server.clear_log()
        dataset = source("npy", urls, storage_options={**server.storage_options, "hedge": False})
        assert len(list(dataset.batch(300))) == 40
        assert sum(seen.method == "HEAD" for seen in server.log()) <= 40 + 40 + 12  # the list, the runs, some groups


def test_many_open_files_do_not_need_more_groups(tmp_path: Path) -> None:
    write_files(tmp_path, "npy", 600)
    with grouped() as sizes, source("npy", f"{tmp_path}/*", cycle_length=50).open() as loader:
        next(iter(loader))
        assert sum(sizes) < 400
        assert len(list(loader)) == 1500 - 1


@pytest.mark.parametrize("name", WRITE)
def test_a_run_resumes_after_every_row_of_a_group(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, name, 9)
    for reading in READING[:3]:
        with grouped() as sizes:
            resumes_everywhere(source(name, f"{tmp_path}/*", **reading))
        assert max(sizes) > 1


@pytest.mark.parametrize("name", WRITE)
def test_a_state_of_a_group_resumes_files_that_are_read_alone(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, name, 9)
    dataset = source(name, f"{tmp_path}/*", cycle_length=2, block_length=2)
    rows = list(dataset)
    for given, (before, after) in product(range(len(rows)), WAYS):
        with before(), dataset.open() as loader:
            for _, _ in zip(range(given), loader, strict=False):
                pass
            state = loader.state_dict()
        with after(), dataset.open(state=state) as loader:
            assert list(loader) == rows[given:]


def test_rows_have_the_origins_of_files_that_are_read_alone(tmp_path: Path) -> None:
    write_files(tmp_path, "parquet", 9)
    dataset = source("parquet", f"{tmp_path}/*").batch(4)
    found = []
    for way in (grouped, alone):
        with way(), dataset.open(seed=1) as loader:
            found.append([[origin.as_dict() for origin in loader.origins(batch)] for batch in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_bad_object_of_a_store_has_the_same_outcome_as_alone(tmp_path: Path, status: int) -> None:
    paths = write_files(tmp_path, "npy", 12)
    with fault_server("s3") as server:
        urls = [server.put(f"bucket/{path.name}", path.read_bytes()) for path in paths]
        server.set_rules(Rule(Fault(status=status), key="*0007.npy"))
        files = Dataset.from_tensor_slices(urls)
        options = {**server.storage_options, "retry_attempts": 2, "hedge": False}
        for policy in (None, "skip"):
            dataset = source("npy", files, storage_options=options, on_error=policy)
            check_both_ways(dataset, tmp_path / "log.jsonl")


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> Iterator[FaultServer]:
    with fault_server(request.param) as running:
        yield running


def put_files(server: FaultServer, folder: Path, name: str) -> list[str]:
    """Return the URLs of small objects, which a run of their own reads in several ranges. One has the key ``*/7``."""
    rng, path = np.random.default_rng(3), folder / f"file.{name}"
    urls = []
    for number in range(9):
        WRITE[name](path, pa.table({"id": rng.integers(0, 1 << 40, 12_000)}))
        urls.append(server.put(f"bucket/{number}", path.read_bytes()))
    return urls


def ids_of(name: str, urls: list[str], **options: Any) -> list[int]:
    """Return the numbers of all rows."""
    batches = source(name, urls, **options).batch(1000)
    return [int(n) for batch in batches for n in (batch if name == "npy" else batch["id"])]


@pytest.mark.parametrize("cycle_length", [1, 3])
@pytest.mark.parametrize("name", WRITE)
def test_an_object_with_a_wrong_checksum_is_never_delivered(
    server: FaultServer, tmp_path: Path, name: str, cycle_length: int
) -> None:
    urls = put_files(server, tmp_path, name)
    server.set_rules(Rule(Fault(corrupt_at="middle"), kind="get", key="*/7"))
    storage = {**server.storage_options, "retry_attempts": 2, "hedge": False}
    for policy in (None, "skip"):  # no policy skips a wrong checksum
        with grouped() as sizes, pytest.raises(ChecksumError, match="bucket/7"):
            ids_of(name, urls, storage_options=storage, on_error=policy, cycle_length=cycle_length)
        assert max(sizes) > 1


@pytest.mark.parametrize("name", WRITE)
def test_an_object_that_arrived_with_a_wrong_checksum_is_read_whole_again(
    server: FaultServer, tmp_path: Path, name: str
) -> None:
    urls = put_files(server, tmp_path, name)
    storage = {**server.storage_options, "retry_attempts": 1, "hedge": False}
    expected = ids_of(name, urls, storage_options=storage)
    server.set_rules(Rule(Fault(corrupt_at="middle"), kind="get", key="*/7", times=2))  # the group asks twice
    server.clear_log()
    with grouped() as sizes:
        assert ids_of(name, urls, storage_options=storage) == expected
    assert max(sizes) > 1
    assert sum(seen.kind == "get" and seen.name == "bucket/7" for seen in server.log()) == 3


@pytest.mark.parametrize("limit", [1 << 20, 8 << 20])
def test_the_memory_limit_bounds_groups(tmp_path: Path, limit: int) -> None:
    for number in range(50):
        np.save(tmp_path / f"{number:04}.npy", np.full((30, 100), number, np.float64))
    dataset = Dataset.from_npy(f"{tmp_path}/*", cycle_length=3).batch(10)
    with grouped():
        found = outcome(dataset, tmp_path / "log.jsonl", memory_limit=limit)
    assert found.error is None
    assert sum(len(batch) for batch in found.rows) == 1500


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_leaving_inside_a_group_leaves_nothing_behind(tmp_path: Path, rows: int) -> None:
    write_files(tmp_path, "parquet")
    with grouped(), leaves_nothing(), source("parquet", f"{tmp_path}/*").open() as loader:
        for _, _ in zip(range(rows), loader, strict=False):
            pass
