"""JSON lines files through a Dataset: schemas, damage, resuming, and every kind of store."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from groups_or_alone import alone
from http_server import HttpObjects

from aiostream_data import CorruptRecordError, Dataset, JsonParseError, PlanError, StateMismatchError, VarLen
from aiostream_data.codecs.compressors import compressor
from aiostream_data.failing.dead_letter_log import read_entries
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

SCHEMA: dict[str, Any] = {"id": np.int64, "x": np.float32, "name": str, "box": {"w": np.int16}}
ROWS = 6


def rows_of(file: int, rows: int = ROWS) -> list[dict[str, Any]]:
    return [
        {
            "id": 100 * file + row,
            "x": None if row == 3 else np.float32(row / 8),
            "name": None if row == 2 else f'name {row}, "quoted"\nline é',
            "box": {"w": None if row == 4 else row},
        }
        for row in range(rows)
    ]


def content(file: int, rows: int = ROWS) -> bytes:
    lines = []
    for row in rows_of(file, rows):
        more: dict[str, Any] = {**row, "x": None if row["x"] is None else float(row["x"]), "other": [{}, [1]]}
        if row["name"] is None:
            del more["name"]
        if row["box"]["w"] is None:
            more["box"] = None
        lines.append(json.dumps(more, ensure_ascii=bool(file % 2)))
    return ("\n\n" if file % 2 else "\r\n").join(lines).encode()


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Four files: one begins with a mark, two are compressed."""
    (tmp_path / "0.jsonl").write_bytes(b"\xef\xbb\xbf" + content(0))
    (tmp_path / "1.jsonl").write_bytes(content(1))
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(content(2)))
    made = compressor("zstd")
    (tmp_path / "3.jsonl.zst").write_bytes(made.compress(content(3)) + made.flush())
    return str(tmp_path / "*.jsonl*")


EXPECTED = [row for file in range(4) for row in rows_of(file)]


def test_rows_of_several_files_are_typed_dicts(files: str) -> None:
    found = list(Dataset.from_jsonl(files, SCHEMA))
    assert found == EXPECTED
    assert type(found[0]["x"]) is np.float32
    assert list(found[6]) == list(SCHEMA)


def test_without_a_schema_rows_are_what_json_loads_returns(files: str) -> None:
    expected = [json.loads(line) for file in range(4) for line in content(file).split(b"\n") if line.strip()]
    assert list(Dataset.from_jsonl(files)) == expected


def test_a_schema_is_inferred_when_the_dataset_is_opened(files: str) -> None:
    dataset = Dataset.from_jsonl(files.replace("*.jsonl*", "[0-2].jsonl*"), "infer")
    with pytest.raises(JsonParseError, match=r"0\.jsonl record 0: field 'other': the values {} and \[1\] have no type"):
        dataset.open()
    path = Path(files).parent / "a.json"
    path.write_text('{"id": 1, "box": {"w": 2}}\n{"id": 2, "box": {}}\n')
    inferred = Dataset.from_jsonl(path, "infer")
    assert list(inferred) == [{"id": 1, "box": {"w": 2}}, {"id": 2, "box": {"w": None}}]
    resumes_everywhere(inferred)
    with inferred.open() as loader:
        next(loader)
        state = loader.state_dict()
        assert inferred.fetch(loader.origins()[0]) == {"id": 1, "box": {"w": 2}}
    path.write_text('{"id": 1.5, "box": {"w": 2}}\n{"id": 2, "box": {}}\n')
    with pytest.raises(StateMismatchError, match="schema"):
        inferred.open(state)


def test_a_function_that_returns_json_datasets_needs_a_schema(files: str) -> None:
    with pytest.raises(PlanError, match="Instead of schema='infer', declare the keys"):
        list(Dataset.list_files(files).interleave(lambda name: Dataset.from_jsonl(name, "infer")))


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_run_resumes_after_every_row(files: str, schema: Any) -> None:
    names = [files.replace("*.jsonl*", name) for name in ("1.jsonl", "2.jsonl.gz")]
    resumes_everywhere(Dataset.from_jsonl(names, schema, cycle_length=2).shuffle(4, seed=1))


def test_rows_have_origins_and_can_be_fetched(files: str) -> None:
    for schema in (SCHEMA, None):
        dataset = Dataset.from_jsonl(files, schema).shuffle(5, seed=3)
        with dataset.open() as loader:
            for _ in range(10):
                element = next(loader)
                (origin,) = loader.origins()
                assert dataset.fetch(origin) == element


def test_ranks_share_the_rows(files: str) -> None:
    found = []
    for rank in range(2):
        with Dataset.from_jsonl(files, SCHEMA).open(rank=rank, world_size=2) as loader:
            found += [row["id"] for row in loader]
    assert sorted(found) == [row["id"] for row in EXPECTED]


def test_batches_are_columns_and_refuse_missing_numbers_by_name(files: str) -> None:
    batch = next(iter(Dataset.from_jsonl(files, SCHEMA).take(3).batch(3)))
    assert batch["x"].dtype == np.float32
    assert batch["box"]["w"].tolist() == [0, 1, 2]
    assert batch["name"].tolist()[2] is None
    with pytest.raises(ValueError, match=r"0\.jsonl record 3 has no value"):
        list(Dataset.from_jsonl(files, SCHEMA).batch(4))


def test_lists_of_numbers_become_ragged_batches(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"v": [1, 2]}\n{"v": []}\n{"v": [3]}\n')
    (batch,) = Dataset.from_jsonl(tmp_path / "a.jsonl", {"v": VarLen(np.float32)}).batch(3)
    assert [row.tolist() for row in batch["v"]] == [[1.0, 2.0], [], [3.0]]


def test_an_index_and_a_dataset_of_files_are_read(files: str, tmp_path: Path) -> None:
    expected = [row["id"] for row in EXPECTED]
    assert [row["id"] for row in Dataset.from_jsonl(Dataset.list_files(files), SCHEMA)] == expected
    names = Dataset.list_files(files)
    found = list(names.interleave(lambda name: Dataset.from_jsonl(name, SCHEMA), cycle_length=2))
    assert sorted(row["id"] for row in found) == sorted(expected)


LINES: dict[bytes, str] = {
    b'{"id": NaN}': "NaN is not JSON",
    b'{"id": 9223372036854775808}': "out of range for int64",
    b'{"id": 1.0}': "expected int64",
    b'{"id": "1"}': "expected int64",
    b'{"id": \x00}': "expecting value",
    b'{"id": 2': "the record ends too early",
    b"[1]": "expected an object",
    b'{"a": "\\ud800"}': "half of a surrogate pair",
    b'{"a": ' + b"[" * 100_000: "nests more than 200",
    b'{"a": "\xff"}': "not valid utf-8",
    b'{"a": "' + b"x" * 150_000 + b'"}': "longer than max_line_nbytes",
}


@pytest.mark.parametrize("number", range(len(LINES)))
def test_damage_is_named_after_the_rows_before_it(tmp_path: Path, number: int) -> None:
    line, message = list(LINES.items())[number]
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 1}\n\n' + line + b'\n{"id": 2}\n')
    dataset = Dataset.from_jsonl(tmp_path / "a.jsonl", {"id": int}, max_line_nbytes=120_000)
    with dataset.open() as loader:
        assert next(loader) == {"id": 1}
        with pytest.raises((JsonParseError, CorruptRecordError), match=message) as raised:
            next(loader)
    assert "a.jsonl" in str(raised.value)
    error: Any = raised.value
    assert 11 <= error.offset <= 11 + len(line)
    if isinstance(error, JsonParseError):
        assert (error.record, error.line) == (1, 3)


def test_skipping_leaves_out_damaged_rows_alone_and_logs_them(tmp_path: Path) -> None:
    lines = [b'{"id": 1}', *LINES, b'{"id": 2}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    for schema, expected in (({"id": int}, [1, 2]), (None, [1, 9223372036854775808, 1.0, "1", None, 2])):
        dataset = Dataset.from_jsonl(tmp_path / "a.jsonl", schema, on_error="skip", max_line_nbytes=120_000)
        log = tmp_path / f"{schema is None}.jsonl"
        with dataset.open(dead_letters=log) as loader:
            found = [row["id"] if isinstance(row, dict) else None for row in loader]
        assert found == expected
        assert len(log.read_text().splitlines()) == len(lines) - len(expected)
    resumes_everywhere(Dataset.from_jsonl(tmp_path / "a.jsonl", {"id": int}, on_error="skip", max_line_nbytes=120_000))


@pytest.mark.chooses_groups
@pytest.mark.parametrize("cycle_length", [1, 3])
@pytest.mark.parametrize("schema", [{"id": int}, None])
def test_the_log_names_lines_and_offsets_of_small_files_that_are_read_together(
    tmp_path: Path, schema: Any, cycle_length: int
) -> None:
    lines = [b'{"id": 1}', b"", b'{"id": }', b'{"id": 2}', b"[", b'{"id": 3}']
    for number in range(8):
        content = b"\n".join(lines[: 1 + number] + [b""] * (number % 2))
        if number % 3 == 1:
            content = b"\xef\xbb\xbf" + content
        (tmp_path / f"{number}.jsonl").write_bytes(content)
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(content))
    for files in ("*.jsonl", "*.jsonl.gz"):
        source = Dataset.from_jsonl(str(tmp_path / files), schema, on_error="skip", cycle_length=cycle_length)
        errors = errors_of(source, tmp_path / "log")
        with alone():
            assert errors_of(source, tmp_path / "log") == errors
        assert sum(" line 3 at byte " in error for error in errors) == 6
        assert sum(" line 5 at byte " in error for error in errors) == 4


def errors_of(source: Dataset[Any], log: Path) -> list[str]:
    """Return the errors in the log of a run, sorted."""
    log.unlink(missing_ok=True)
    with source.open(dead_letters=log) as loader:
        assert {row["id"] for row in loader} == {1, 2, 3}
    return sorted(entry["error"] for entry in read_entries(log))


@pytest.mark.parametrize("schema", [{"a": int, "b": str}, None])
def test_a_file_cut_off_anywhere_gives_its_rows_or_an_error(tmp_path: Path, schema: Any) -> None:
    whole = '{"a":1,"b":"é"}\n\n{"b":null,"a":23}'.encode()
    expected = list(Dataset.from_jsonl(_written(tmp_path, whole), schema))
    for end in range(len(whole)):
        found: list[Any] = []
        dataset = Dataset.from_jsonl(_written(tmp_path, whole[:end]), schema)
        with suppress(JsonParseError, CorruptRecordError), dataset.open() as loader:
            found.extend(loader)
            assert whole[:end].strip()[-1:] in (b"", b"}"), "an incomplete row raises an error"
        assert found == expected[: len(found)], end


def _written(folder: Path, data: bytes) -> Path:
    (folder / "a.jsonl").write_bytes(data)
    return folder / "a.jsonl"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(b"{}\n", mtime=0), "pass compression='gzip'"),
        (b"PAR1\x15\0\0\0\0\x80" + bytes(50), "Parquet"),
        ("{}\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_binary_files_are_recognised(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        list(Dataset.from_jsonl(_written(tmp_path, data), compression=""))


def test_a_state_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, b'{"a": 1}\n{"a": 2}\n')
    with Dataset.from_jsonl(path, {"a": int}).open() as loader:
        next(loader)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="schema"):
        Dataset.from_jsonl(path, {"a": float}).open(state)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset.from_jsonl("a", {"a": bytes}), "Declare str, and decode it in map"),
        (lambda: Dataset.from_jsonl("a", {}), "at least one key"),
        (lambda: Dataset.from_jsonl("a", cast(Any, "auto")), "schema must be a dict such as .*, 'infer' or None"),
        (lambda: Dataset.from_jsonl("a", max_line_nbytes=0), "max_line_nbytes must be"),
    ],
)
def test_invalid_arguments_are_refused_at_once(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


def test_every_store_delivers_the_same_rows(http_objects: HttpObjects, memory_objects: None) -> None:
    expected = [row for file in range(2) for row in rows_of(file)]
    for file in range(2):
        memory.put(f"memory://rows/{file}.jsonl", content(file))
    urls = [http_objects.put(f"/{file}.jsonl", content(file)) for file in range(2)]
    assert list(Dataset.from_jsonl("memory://rows/*.jsonl", SCHEMA)) == expected
    assert list(Dataset.from_jsonl(urls, SCHEMA)) == expected
    assert [row["id"] for row in Dataset.from_jsonl(urls)] == [row["id"] for row in expected]


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        for file in range(3):
            server.put(f"bucket/rows/{file}.jsonl", content(file, 60))
        for schema in (SCHEMA, None):
            url = f"{scheme}://bucket/rows/*.jsonl"
            dataset = Dataset.from_jsonl(url, schema, storage_options=server.storage_options, cycle_length=2)
            with dataset.open() as loader:
                left = [next(loader)["id"] for _ in range(80)]
                state = loader.state_dict()
            with dataset.open(state) as loader:
                left += [row["id"] for row in loader]
            assert sorted(left) == sorted(row["id"] for file in range(3) for row in rows_of(file, 60))
