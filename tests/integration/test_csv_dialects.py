"""CSV files in other encodings, with other line ends, and files of JSON that are named as CSV files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import CsvParseError, CsvSchemaError, Dataset
from aiostream_data.cli.main import main

WORDS = {
    "latin-1": "größe",
    "cp1252": "größe€",
    "iso-8859-15": "€uro",
    "cp1251": "привет",
    "koi8-r": "привет",
    "shift_jis": "ポ表ソ",  # the second bytes of these characters are | and \\
    "euc-jp": "日本",
    "gb18030": "中文丂",
    "big5": "功許",
    "utf-8": "größe",
    "utf-8-sig": "größe",
}


@pytest.mark.parametrize("encoding", WORDS)
@pytest.mark.parametrize("delimiter", [",", "|"])
def test_headers_and_values_of_any_encoding(tmp_path: Path, encoding: str, delimiter: str) -> None:
    word = WORDS[encoding]
    rows = [[word, "b"], [word, f'"{word}{delimiter}x"'], ["z", "1"]]
    (tmp_path / "a.csv").write_bytes("".join(delimiter.join(row) + "\r\n" for row in rows).encode(encoding))
    expected = [{word: word, "b": f"{word}{delimiter}x"}, {word: "z", "b": "1"}]
    given: dict[str, Any] = {"encoding": encoding, "delimiter": delimiter}
    for schema in (None, {word: str, "b": str}, {"b": str, word: str}):
        for policy in (None, "skip"):
            assert list(Dataset.from_csv(tmp_path / "a.csv", schema, on_error=policy, **given)) == expected
    assert list(Dataset.from_csv(tmp_path / "a.csv", select=[word], **given)) == [{word: word}, {word: "z"}]
    first = next(iter(Dataset.from_csv(tmp_path / "a.csv", header=False, **given)))
    assert first == {"column_0": word, "column_1": "b"}


def test_small_files_of_another_encoding_are_inferred_alike(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.csv").write_bytes(f"größe,b\n{number},ä\n".encode("latin-1"))
    found = Dataset.from_csv(tmp_path / "*.csv", encoding="latin-1")
    assert list(found) == [{"größe": number, "b": "ä"} for number in range(4)]


RETURNS = [
    b"id,x\r1,a\r2,b\r",
    b'"id","x"\r"1","a"\r',
    b"id,x\r\r\n1,a\r\r\n",
    b"id,x\r" + b"1,abcdefgh\r" * 100_000,
]


@pytest.mark.parametrize("content", RETURNS)
@pytest.mark.parametrize("schema", [None, {"id": str, "x": str}])
@pytest.mark.parametrize("header", [True, False])
def test_lines_that_end_with_a_carriage_return_alone_are_refused(
    tmp_path: Path, content: bytes, schema: Any, header: bool
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(content))
    for name in ("a.csv", "b.csv.gz", "*.csv*"):
        for policy in (None, "skip"):
            dataset = Dataset.from_csv(tmp_path / name, schema, header=header, on_error=policy)
            with pytest.raises(CsvSchemaError, match=r"carriage return \(\\r\) outside quotes.*convert the line ends"):
                list(dataset)


def test_programs_refuse_such_lines_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_bytes(RETURNS[0])
    with pytest.raises(CsvSchemaError, match="carriage return"):
        list(Dataset.open_any(tmp_path / "a.csv"))
    assert main(["head", str(tmp_path / "a.csv")]) != 0
    assert "carriage return" in capsys.readouterr().err


def test_carriage_returns_in_quotes_and_at_the_end_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"i\rd",x\r\n1,"a\rb"\r\n2,c\r')
    assert list(Dataset.from_csv(tmp_path / "a.csv")) == [{"i\rd": 1, "x": "a\rb"}, {"i\rd": 2, "x": "c"}]


@pytest.mark.parametrize("content", [b"id,x\n1,a\r2,b\r", b"id,x\n1\r2,b\n"])
def test_later_lines_that_end_so_are_explained(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(CsvParseError, match=r"line 2: .*carriage return \(\\r\) alone does not end a line"):
        list(Dataset.from_csv(tmp_path / "a.csv", {"id": int, "x": str}))


@pytest.mark.parametrize("content", ['{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n', '{"a":1}\n', '{"a": 1, "b": [2]}'])
def test_json_lines_are_no_rows(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    for schema in (None, {"a": int}):
        with pytest.raises(CsvSchemaError, match=r"the first line is JSON, not a CSV header; .* from_jsonl\(\)"):
            list(Dataset.from_csv(tmp_path / "a.csv", schema))
    expected = list(Dataset.from_jsonl(tmp_path / "a.csv"))
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_text(content)
        assert list(Dataset.open_any(tmp_path / name)) == expected


@pytest.mark.parametrize("content", ['{\n  "a": 1\n}\n', '[\n {"a": 1}\n]\n', '[{"a": 1}]'])
def test_a_json_document_is_no_table(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(CsvSchemaError, match=r"the file is a JSON document, not CSV; write one record per line"):
        list(Dataset.from_csv(tmp_path / "a.csv"))


def test_headers_with_brackets_are_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("[id],{x}\n1,2\n")
    assert list(Dataset.from_csv(tmp_path / "a.csv")) == [{"[id]": 1, "{x}": 2}]


def test_a_file_of_zero_bytes_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(bytes(4096))
    for schema in (None, {"id": int}):
        with pytest.raises(CsvSchemaError, match="the header contains zero bytes, so the file is no text"):
            list(Dataset.from_csv(tmp_path / "a.csv", schema))
    (tmp_path / "b.csv").write_bytes(b"id\n1\n")
    with pytest.raises(CsvSchemaError, match=r"a\.csv: the header contains zero bytes"):
        list(Dataset.from_csv(tmp_path / "*.csv", {"id": int}))
