"""Inferring the schemas of CSV and JSON lines files that begin with damaged, empty or missing parts."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import (
    CorruptRecordError,
    CsvParseError,
    CsvSchemaError,
    DataError,
    Dataset,
    JsonParseError,
    ObjectNotFoundError,
    Retry,
    Skip,
    write_index,
)

Read = Callable[..., Dataset[Any]]


def from_jsonl(path: Path, **given: Any) -> Dataset[Any]:
    return Dataset.from_jsonl(path, "infer", **given)


CASES: list[tuple[str, bytes, Read, list[Any], int]] = [
    ("a.jsonl", b'{"a":1}\n{"a":"\xff"}\n{"a":2,"b":1}\n', from_jsonl, [{"a": 1, "b": None}, {"a": 2, "b": 1}], 2),
    ("a.jsonl", b'{"a":"\xff"}\n{"a":1}\n{"b":2}\n', from_jsonl, [{"a": 1, "b": None}, {"a": None, "b": 2}], 1),
    ("a.csv", b"id,x\n1,na\xefve\n2,b\n3,c\n", Dataset.from_csv, [{"id": 2, "x": "b"}, {"id": 3, "x": "c"}], 2),
    ("a.csv", b'id,x\n1,"a\nb"\n\n2,\xff\n3,c\n', Dataset.from_csv, [{"id": 1, "x": "a\nb"}, {"id": 3, "x": "c"}], 5),
]


@pytest.mark.parametrize(("name", "content", "read", "expected", "line"), CASES)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_damaged_lines_do_not_change_an_inferred_schema(
    tmp_path: Path, name: str, content: bytes, read: Read, expected: list[Any], line: int, is_compressed: bool
) -> None:
    path = tmp_path / (name + ".gz" * is_compressed)
    path.write_bytes(gzip.compress(content) if is_compressed else content)
    for policy in ("skip", Skip(5), Retry(1, 0.0, then="skip")):
        assert list(read(path, on_error=policy)) == expected
    with read(path).open(on_error="skip") as loader:
        assert list(loader) == expected
    with pytest.raises(CorruptRecordError, match=rf"line {line}: not valid utf-8 at byte \d+"):
        list(read(path))


def test_a_line_that_is_too_long_does_not_change_an_inferred_schema(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"c": "' + "x" * 200 + '"}\n{"b": 2}\n')
    found = list(from_jsonl(tmp_path / "a.jsonl", on_error="skip", max_line_nbytes=100))
    assert found == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_a_file_of_damaged_lines_alone_ends_in_the_error_of_its_reader(tmp_path: Path) -> None:
    for name, content, read in (
        ("a.jsonl", b'{"a":"\xff"}\n', from_jsonl),
        ("a.csv", b"\xff\n", lambda path, **given: Dataset.from_csv(path, header=False, **given)),
    ):
        (tmp_path / name).write_bytes(content)
        for policy in (None, "skip"):
            with pytest.raises(CorruptRecordError, match="line 1: not valid utf-8"):
                list(read(tmp_path / name, on_error=policy))


def test_a_damaged_header_is_an_error_and_never_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,na\xefve\n1,2\n")
    for policy in (None, "skip"):
        with pytest.raises(CsvSchemaError, match=r"the header is not valid utf-8.*pass the encoding"):
            list(Dataset.from_csv(tmp_path / "a.csv", on_error=policy))


@pytest.mark.parametrize("policy", [None, "skip"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a":NaN}\n', r"a\.jsonl line 1 at byte 5: NaN is not JSON; write null.*no JSON object"),
        ('\n\n{"a":Infinity}\n', r"a\.jsonl line 3 at byte 7: Infinity is not JSON"),
        ('{\n  "a": 1\n}\n', r"a\.jsonl line 1 at byte 1: expecting property name"),
        ("[1]\n", r"a\.jsonl line 1 at byte 0: expected an object, found '\[1\]'.*pass schema=None"),
    ],
)
def test_a_file_without_objects_is_explained_with_its_line(
    tmp_path: Path, content: str, message: str, policy: Any
) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(JsonParseError, match=message):
        list(from_jsonl(tmp_path / "a.jsonl", on_error=policy))


@pytest.mark.parametrize("start", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"a,b\n"])
def test_columns_are_inferred_from_the_first_file_with_rows(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "0.csv").write_bytes(start)
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_bytes(b"")
    expected = [{"a": 1, "b": "x"}]
    assert list(Dataset.from_csv(tmp_path / "*.csv")) == expected
    assert list(Dataset.from_csv([tmp_path / "2.csv", tmp_path / "0.csv", tmp_path / "1.csv"])) == expected
    assert list(Dataset.open_any(tmp_path / "*.csv")) == expected
    write_index(tmp_path / "*.csv", tmp_path / "index.jsonl")
    assert list(Dataset.from_csv(index=tmp_path / "index.jsonl")) == expected
    assert list(Dataset.from_csv(Dataset.list_files(index=tmp_path / "index.jsonl"))) == expected


def test_files_without_headers_can_begin_with_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"")
    (tmp_path / "1.csv").write_text("1,x\n")
    assert list(Dataset.from_csv(tmp_path / "*.csv", header=False)) == [{"column_0": 1, "column_1": "x"}]


def test_keys_are_inferred_from_the_first_file_with_objects(tmp_path: Path) -> None:
    for number, content in enumerate(["", "\n", "{}\n", '{"a": 1}\n', ""]):
        (tmp_path / f"{number}.jsonl").write_text(content)
    assert list(from_jsonl(tmp_path / "*.jsonl")) == [{"a": None}, {"a": 1}]


def test_a_damaged_first_file_is_skipped_or_raises(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_bytes(b'{"a":"\xff"}\n')
    (tmp_path / "1.jsonl").write_text('{"a": 1}\n')
    assert list(from_jsonl(tmp_path / "*.jsonl", on_error="skip")) == [{"a": 1}]
    with pytest.raises(CorruptRecordError, match=r"0\.jsonl at byte 0: line 1: not valid utf-8"):
        list(from_jsonl(tmp_path / "*.jsonl"))


def test_a_missing_first_file_is_skipped_or_raises(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n")
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    assert list(Dataset.from_csv(files, on_error="skip")) == [{"a": 1}]
    with pytest.raises(ObjectNotFoundError, match=r"0\.csv"):
        list(Dataset.from_csv(files))


def test_files_without_any_row_have_columns_only_if_one_has_a_header(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"")
    with pytest.raises(CsvSchemaError, match=r"0\.csv: the file is empty, so its columns are unknown"):
        Dataset.from_csv(tmp_path / "*.csv").open()
    (tmp_path / "1.csv").write_text("a\n")
    assert list(Dataset.from_csv(tmp_path / "*.csv")) == []


def test_a_first_row_that_is_longer_than_the_bytes_to_infer_from_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"' + "x" * (1 << 20) + '"\n')
    with pytest.raises(CsvSchemaError, match="the first MiB of the file contains no complete row"):
        Dataset.from_csv(tmp_path / "a.csv", header=False).open()


BIG = 12345678901234567890


CONTRADICTIONS: list[tuple[Read, str, str, type[DataError], str]] = [
    (Dataset.from_csv, "x,y\n1,1\n", "x,y\n1,1\n1.5,1\n", CsvParseError, "line 3: column 'x': '1.5' is not int64"),
    (
        Dataset.from_csv,
        "x\n1\n",
        f"x\n{2**63}\n",
        CsvParseError,
        f"line 2: column 'x': '{2**63}' is out of range for int64",
    ),
    (
        from_jsonl,
        '{"x": 1}\n',
        '{"x": 1}\n{"x": 1.5}\n',
        JsonParseError,
        "line 2 at byte 15: field 'x': expected int64 or null",
    ),
    (
        from_jsonl,
        '{"x": 1}\n',
        f'{{"x": {2**63}}}\n',
        JsonParseError,
        "line 1 at byte 6: field 'x': a number is out of range for int64",
    ),
    (
        from_jsonl,
        '{"x": {"y": 1}}\n',
        '{"x": 1}\n',
        JsonParseError,
        "line 1 at byte 6: field 'x': expected an object or null",
    ),
]


@pytest.mark.parametrize(("read", "first", "later", "kind", "told"), CONTRADICTIONS)
@pytest.mark.parametrize("filling", [0, 5000])
def test_a_type_that_a_later_file_contradicts_is_told_with_both_files(
    tmp_path: Path, read: Read, first: str, later: str, kind: type[DataError], told: str, filling: int
) -> None:
    row = first.splitlines(keepends=True)[-1]
    (tmp_path / "a").write_text(first + row * filling)
    (tmp_path / "b").write_text(later)
    with pytest.raises(kind) as caught:
        list(read([tmp_path / "a", tmp_path / "b"]))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/b {told}, the type inferred from the start of {tmp_path}/a")
    assert "; declare " in message


def test_a_type_that_the_same_file_contradicts_is_told_with_its_start(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 2000 + "1.5\n")
    with pytest.raises(
        CsvParseError, match=r"a\.csv line 2002: .*, the type inferred from the start of this file; dec"
    ):
        list(Dataset.from_csv(tmp_path / "a.csv"))
    with pytest.raises(CsvParseError, match=r"'1\.5' is not int64; declare"):
        list(Dataset.from_csv(tmp_path / "a.csv", {"x": np.int64}))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_the_file_that_determined_the_types_is_no_part_of_a_state(tmp_path: Path, name: str) -> None:
    read: Read = Dataset.from_csv if name == "a.csv" else from_jsonl
    found = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        (folder / name).write_text("x\n1\n2\n" if name == "a.csv" else '{"x": 1}\n{"x": 2}\n')
        with read(folder / name).open() as loader:
            assert next(loader) == {"x": 1}
            state = loader.state_dict()
        with read(folder / name).open(state=state) as loader:
            assert next(loader) == {"x": 2}
        source, parse = state["pipeline"]["plan"]
        assert str(tmp_path) in source["args"]["patterns"]
        found.append(parse)
    assert found[0] == found[1]
    assert found[0]["args"].keys() <= {"names", "types", "select", "na_values", "syntax", "schema"}


def test_inferred_types_never_round_integers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id,more,n\n9007199254740993,{BIG}0,1\n{BIG},-1,1.5\n")
    first, last = Dataset.from_csv(tmp_path / "a.csv")
    assert first == {"id": 9007199254740993, "more": f"{BIG}0", "n": 1.0}
    assert last == {"id": BIG, "more": "-1", "n": 1.5}
    assert type(last["id"]) is np.uint64
    (tmp_path / "a.jsonl").write_text(f'{{"id": 9007199254740993, "n": 1}}\n{{"id": {BIG}, "n": 1.5}}\n')
    assert list(from_jsonl(tmp_path / "a.jsonl")) == [{"id": 9007199254740993, "n": 1.0}, {"id": BIG, "n": 1.5}]
    (tmp_path / "a.jsonl").write_text(f'{{"id": -1}}\n{{"id": {BIG}}}\n')
    with pytest.raises(JsonParseError, match=rf"'id': integers from -1 to {BIG} fit neither int64 nor uint64; declare"):
        list(from_jsonl(tmp_path / "a.jsonl"))
