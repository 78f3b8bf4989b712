"""Functions that make a dataset of each file: small files read in groups have the outcome that each has alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from groups_or_alone import alone, check_both_ways, grouped, outcome
from leaks import leaves_nothing
from many_shards import (
    CHANGES,
    CONTENT,
    DAMAGE,
    RECORD_NBYTES,
    SUFFIXES,
    record,
    replace_by_loop,
    source,
    truncate,
    write_shards,
)

from aiostream_data import Dataset, ErrorBudgetError, FixedLen, Retry, Skip, TFRecordWriter, encode_example
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.storage import memory
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.resume import resumes_everywhere

FILES = 40
BAD = 13
"""Number of the bad file, in the middle of a group."""

POLICIES: list[Any] = [None, Retry(1, backoff_s=0.0), "skip"]
MERGING: list[dict[str, Any]] = [
    {"cycle_length": 1},
    {"cycle_length": 3, "block_length": 2},
    {"cycle_length": 30},
    {"cycle_length": 5, "block_length": 3},
]
Way = Callable[[], AbstractContextManager[Any]]
WAYS: list[tuple[Way, Way]] = [(grouped, alone), (alone, grouped)]


pytestmark = [pytest.mark.chooses_groups, pytest.mark.leaves_nothing]


def opened(
    paths: list[Path], name: str = "from_tfrecord", compression: str = "", on_error: Any = None, **merging: Any
) -> Dataset[Any]:
    """Return the rows of a dataset per file."""
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    return files.interleave(lambda url: source(name, url, compression, on_error=on_error), **merging)


def policies_of(name: str) -> list[Any]:
    """Return the policies with which a dataset is one source: with others, a stage of its own parses CSV records."""
    return POLICIES[:1] if name == "from_csv" else POLICIES


@pytest.mark.parametrize("damage", [*DAMAGE, *CHANGES])
@pytest.mark.parametrize("name", CONTENT)
def test_a_bad_file_has_the_same_outcome_as_alone(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    number = [*DAMAGE, *CHANGES].index(damage) + list(CONTENT).index(name)
    compression = list(SUFFIXES)[number % len(SUFFIXES)]
    paths = write_shards(folder, name, compression, FILES)
    damage(paths[BAD])
    for policy in policies_of(name):
        number += 1
        dataset = opened(paths, name, compression, policy, **MERGING[number % len(MERGING)])
        check_both_ways(dataset, tmp_path / "log.jsonl")


@pytest.mark.parametrize("name", [name for name in CONTENT if name != "from_csv"])
def test_several_bad_files_are_skipped_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, name, "gzip", FILES)
    for number, change in enumerate(change for change in CHANGES if change is not replace_by_loop):
        change(paths[1 + 4 * number])
    dataset = opened(paths, name, "gzip", Retry(1, backoff_s=0.0, then="skip"), cycle_length=4)
    assert check_both_ways(dataset, tmp_path / "log.jsonl").error is None


@pytest.mark.parametrize("name", ["from_text", "from_files", "from_tfrecord", "from_npy"])
@pytest.mark.parametrize("then", ["raise", "skip"])
@pytest.mark.parametrize("missing", [0, 5])
def test_a_missing_file_is_looked_for_again(
    memory_objects: None, monkeypatch: pytest.MonkeyPatch, name: str, then: Any, missing: int
) -> None:
    """The file appears after three requests: of its group, and of its own run, which retries."""
    asked: list[str] = []
    bad = f"memory://files/{missing}.npy"
    content = {"from_tfrecord": frame(b"row"), "from_npy": npy(7)}.get(name, b"row")

    def appearing(find: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        async def found(store: MemoryStore, url: str) -> Any:
            asked.extend([url] * (url == bad))
            if len(asked) == 4:
                memory.put(bad, content)
            return await find(store, url)

        return found

    for number in range(8):
        if number != missing:
            memory.put(f"memory://files/{number}.npy", content)
    for method in ("info", "glob"):
        monkeypatch.setattr(MemoryStore, method, appearing(getattr(MemoryStore, method)))
    paths = [f"memory://files/{number}.npy" for number in range(8)]
    policy = Retry(5, backoff_s=0.0, then=then)
    make = getattr(Dataset, name)
    files = Dataset.from_tensor_slices(paths)
    with files.interleave(lambda url: make(url, on_error=policy), cycle_length=2).open() as loader:
        assert len(list(loader)) == 8
        assert sum(stage.retries for stage in loader.stats().stages) >= 1


def npy(value: int) -> bytes:
    """Return a NumPy file with one row."""
    stream = BytesIO()
    np.save(stream, np.array([value]))
    return stream.getvalue()


def test_files_of_a_group_count_against_the_error_budget(tmp_path: Path) -> None:
    """The number of rows in the error depends on what was read ahead."""
    paths = write_shards(tmp_path, "from_tfrecord", "", FILES)
    truncate(paths[BAD])
    dataset = opened(paths, on_error=Skip(max_count=0))
    with grouped():
        found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        expected = outcome(dataset, tmp_path / "log.jsonl")
    assert found.rows == expected.rows
    assert found.error is not None
    assert expected.error is not None
    assert found.error[0] is expected.error[0] is ErrorBudgetError


def test_rows_of_later_files_do_not_count_for_the_rate_of_losses(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:04}.txt" for number in range(300)]
    for path in paths:
        path.write_bytes(b"line\n" * 100)
    paths[20].write_bytes(b"line\n" * 50 + b"\xff\n" * 5)
    dataset = opened(paths, "from_text", on_error=Skip(max_rate=0.0016))
    for way in (grouped, alone):
        with way(), pytest.raises(ErrorBudgetError, match="max_rate"):
            list(dataset)


@pytest.mark.parametrize("failing", [0, 1, 3, 4, 8, 13, 39])
def test_a_failing_function_fails_behind_the_files_before(tmp_path: Path, failing: int) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    paths = write_shards(folder, "from_text", "", FILES)
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    calls: list[str] = []

    def read(url: str) -> Dataset[Any]:
        calls.append(url)
        if url == str(paths[failing]):
            raise ValueError("unknown file")
        return Dataset.from_text(url)

    dataset = files.interleave(read, cycle_length=2)
    with grouped():
        found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        assert outcome(dataset, tmp_path / "log.jsonl") == found
    assert found.error is not None
    assert found.error[0] is ValueError
    assert calls[: failing + 1] == [str(path) for path in paths[: failing + 1]]
    assert calls.count(str(paths[failing])) == 2  # once in each way: no element after the failure is needed


def test_the_function_is_called_once_per_file_in_order(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", 300)
    calls: list[str] = []

    def read(url: str) -> Dataset[Any]:
        calls.append(url)
        return Dataset.from_text(url)

    with grouped() as sizes:
        rows = list(Dataset.from_tensor_slices([str(path) for path in paths]).flat_map(read))
    assert len(rows) == 750
    assert calls == [str(path) for path in paths]
    assert max(sizes) > 50


@pytest.mark.parametrize("after", [5, 20])
def test_the_function_is_called_few_elements_ahead_unless_it_opens_small_files(tmp_path: Path, after: int) -> None:
    paths = [str(path) for path in write_shards(tmp_path, "from_text", "", 300)]
    most, calls, rows = 0, 0, 0

    def read(number: int) -> Any:
        nonlocal calls
        calls += 1
        return Dataset.from_text(paths[number]) if number < after else Dataset.from_iterable([f"row {number}"]).map(str)

    with grouped():
        for row in Dataset.range(300).flat_map(read):
            rows += row.startswith("row")
            most = max(most, calls - rows - after) if rows else 0
    assert rows == 300 - after
    assert most < 50


def test_options_that_cannot_be_compared_are_read_alone(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", 12)
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    with grouped():
        rows = list(files.flat_map(lambda url: Dataset.from_text(url, storage_options={"x": np.zeros(3)})))
    assert len(rows) == 30


def test_defaults_of_either_sign_of_zero_are_kept(tmp_path: Path) -> None:
    for number in range(20):
        with TFRecordWriter(tmp_path / f"{number:02}.tfrecord") as writer:
            writer.write(encode_example({"y": 1}))

    def read(url: str) -> Dataset[Any]:
        default = -0.0 if int(Path(url).stem) >= 7 else 0.0
        return Dataset.from_tfrecord(url).parse_example({"x": FixedLen((), np.float32, default=default)})

    with grouped():
        rows = list(Dataset.list_files(f"{tmp_path}/*").flat_map(read))
    assert [bool(np.signbit(row["x"])) for row in rows] == [number >= 7 for number in range(20)]


def test_datasets_with_different_options_keep_their_own(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)
    other = FILES // 2

    def read(url: str) -> Dataset[Any]:
        number = int(Path(url).stem)
        return Dataset.from_fixed_length(url, RECORD_NBYTES) if number >= other else Dataset.from_text(url)

    rows = list(Dataset.from_tensor_slices([str(path) for path in paths]).flat_map(read))
    assert rows[0] == record(0, 0).decode()
    assert rows[-1] == (record(FILES - 1, 3) + b"\n")[-RECORD_NBYTES:]
    assert sum(isinstance(row, bytes) for row in rows) == sum(1 + number % 4 for number in range(other, FILES))


def test_files_among_other_datasets_are_delivered_in_order(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_text", "", FILES)

    def read(url: str) -> Any:
        number = int(Path(url).stem)
        if number % 7 == 6:
            return [f"list {number}"]
        if number % 7 == 3:
            return Dataset.from_text(url).map(str.upper)
        return Dataset.from_text(url)

    dataset = Dataset.from_tensor_slices([str(path) for path in paths]).interleave(read, cycle_length=3)
    expected = []
    with alone():
        expected = list(dataset)
    with grouped():
        assert list(dataset) == expected
    assert "list 6" in expected


def test_patterns_and_several_files_are_listed_as_before(tmp_path: Path) -> None:
    write_shards(tmp_path, "from_text", "", 12)
    patterns = [f"{tmp_path}/000[0-4].*", f"{tmp_path}/000[5-9].*"]
    dataset = Dataset.from_tensor_slices(patterns).flat_map(Dataset.from_text)
    assert list(dataset) == list(Dataset.from_text(f"{tmp_path}/000?.*"))


def test_examples_are_parsed_with_the_features_of_their_function(tmp_path: Path) -> None:
    for number in range(30):
        with TFRecordWriter(tmp_path / f"{number:02}.tfrecord") as writer:
            for row in range(number % 3):
                writer.write(encode_example({"x": np.array([number, row])}))

    def read(url: str) -> Dataset[Any]:
        return Dataset.from_tfrecord(url).parse_example({"x": FixedLen((2,), np.int64)})

    with grouped() as sizes:
        rows = list(Dataset.list_files(f"{tmp_path}/*").flat_map(read))
    assert max(sizes) > 1
    assert [row["x"].tolist() for row in rows] == [[n, row] for n in range(30) for row in range(n % 3)]


@pytest.mark.parametrize("merging", MERGING)
@pytest.mark.parametrize("name", CONTENT)
def test_a_run_resumes_after_every_row_of_a_group(tmp_path: Path, name: str, merging: dict[str, Any]) -> None:
    paths = write_shards(tmp_path, name, "", 9)
    with grouped() as sizes:
        resumes_everywhere(opened(paths, name, **merging))
    assert max(sizes) > 1


def test_a_state_of_a_group_resumes_files_that_are_read_alone(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 9)
    dataset = opened(paths, cycle_length=2, block_length=2)
    rows = list(dataset)
    for given, (before, after) in product(range(len(rows)), WAYS):
        with before(), dataset.open() as loader:
            for _, _ in zip(range(given), loader, strict=False):
                pass
            state = loader.state_dict()
        with after(), dataset.open(state=state) as loader:
            assert list(loader) == rows[given:]


def test_shuffled_rows_of_groups_are_recalled_from_a_state(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "gzip", 12)
    with grouped():
        resumes_everywhere(opened(paths, compression="gzip", cycle_length=3).shuffle(7, seed=1))


def test_rows_have_the_origins_of_files_that_are_read_alone(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 9)
    dataset = opened(paths, cycle_length=2).batch(4)
    found = []
    for way in (grouped, alone):
        with way(), dataset.open(seed=1) as loader:
            found.append([[origin.as_dict() for origin in loader.origins(batch)] for batch in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_bad_object_of_a_store_has_the_same_outcome_as_alone(tmp_path: Path, status: int) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 12)
    with fault_server("s3") as server:
        urls = [server.put(f"bucket/{path.name}", path.read_bytes()) for path in paths]
        server.set_rules(Rule(Fault(status=status), key="*0007.data"))
        options = {**server.storage_options, "retry_attempts": 2, "hedge": False}

        def read(url: str) -> Dataset[Any]:
            return Dataset.from_tfrecord(url, storage_options=options)

        def skip(url: str) -> Dataset[Any]:
            return Dataset.from_tfrecord(url, storage_options=options, on_error="skip")

        for function in (read, skip):
            check_both_ways(Dataset.from_tensor_slices(urls).flat_map(function), tmp_path / "log.jsonl")


def test_each_object_of_a_store_is_asked_once_and_read_once(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", 60)
    with fault_server("s3") as server:
        urls = [server.put(f"bucket/{path.name}", path.read_bytes()) for path in paths]
        server.clear_log()
        options = {**server.storage_options, "hedge": False}
        files = Dataset.from_tensor_slices(urls)
        rows = list(files.flat_map(lambda url: Dataset.from_tfrecord(url, storage_options=options)))
        assert len(rows) == 150
        methods = [seen.method for seen in server.log()]
    assert methods.count("HEAD") == methods.count("GET") == 60


def test_large_files_are_not_asked_for_their_sizes_again_and_again() -> None:
    with fault_server("s3") as server:
        urls = [server.put(f"bucket/{number:02}.bin", bytes(3 << 20)) for number in range(40)]
        server.clear_log()
        options = {**server.storage_options, "hedge": False}
        files = Dataset.from_tensor_slices(urls)
        dataset = files.flat_map(lambda url: Dataset.from_fixed_length(url, 1 << 20, storage_options=options))
        assert sum(1 for _ in dataset) == 120
        assert sum(seen.method == "HEAD" for seen in server.log()) <= 40 + 12  # the runs, some groups


@pytest.mark.parametrize("limit", [1 << 20, 8 << 20])
def test_the_memory_limit_bounds_groups(tmp_path: Path, limit: int) -> None:
    paths = [tmp_path / f"{number:04}.bin" for number in range(50)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 24_000)
    files = Dataset.from_tensor_slices([str(path) for path in paths])
    dataset = files.interleave(lambda url: Dataset.from_fixed_length(url, 800), cycle_length=3).batch(10)
    found = outcome(dataset, tmp_path / "log.jsonl", memory_limit=limit)
    assert found.error is None
    assert sum(len(batch) for batch in found.rows) == 1500


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_leaving_inside_a_group_leaves_nothing_behind(tmp_path: Path, rows: int) -> None:
    paths = write_shards(tmp_path, "from_tfrecord", "", FILES)
    with grouped(), leaves_nothing(), opened(paths).open() as loader:
        for _, _ in zip(range(rows), loader, strict=False):
            pass
