"""``head``, ``count`` and ``inspect`` show data of any format, for people and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data.cli import reading
from aiostream_data.cli.elements import as_json, as_text, schema_of
from aiostream_data.cli.main import main


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = "".join(f"{row},row {row}\n" for row in range(3000))
    (tmp_path / "a.csv").write_text("id,text\n" + rows)
    (tmp_path / "b.csv").write_text("id,text\n0,x\n")
    return str(tmp_path / "*.csv")


def test_head_prints_the_first_records(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", table, "-n", "2"]) == 0
    assert capsys.readouterr().out == "{id: 0, text: 'row 0'}\n{id: 1, text: 'row 1'}\n"
    assert main(["head", "--json", table]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": row, "text": f"row {row}"} for row in range(5)]


def test_count_counts_all_records_of_any_shape(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", table]) == 0
    assert capsys.readouterr().out == "3,001 records\n"
    (tmp_path / "c.jsonl").write_text('{"a": [1]}\n{"a": [1, 2]}\n{"b": null}\n')
    assert main(["count", "--json", str(tmp_path / "c.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out) == {"records": 3}


def test_count_tells_its_progress_on_a_terminal(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PROGRESS_S", 0.0)
    main(["count", table])
    assert capsys.readouterr().err == "", "the output goes to a file"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(["count", table])
    assert "\r3,001 records, " in capsys.readouterr().err


def test_inspect_tells_format_sizes_and_schema(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", table]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert facts.pop("bytes") == facts.pop("largest_file") + facts.pop("smallest_file")
    assert facts.pop("call").startswith("Dataset.from_csv(")
    assert facts.pop("median_file") > 12
    assert facts == {
        "format": "CSV",
        "compression": "none",
        "files": 2,
        "skew": 2.0,
        "schema": {"id": "int", "text": "str"},
    }
    assert main(["inspect", table]) == 0
    said = capsys.readouterr().out
    assert "format: CSV\n" in said
    assert "schema:\n  id: int\n  text: str\n" in said


def test_data_that_cannot_be_read_is_one_message_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("head", "count", "inspect"):
        assert main([command, str(tmp_path / "missing")]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("aiostream-data: ")
        assert "no file matches" in said.err


@pytest.mark.parametrize("arguments", [["head", "x", "-n", "0"], ["head", "x", "-n", "one"], ["count"], []])
def test_wrong_arguments_are_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: aiostream-data" in capsys.readouterr().err


def test_options_of_the_store_are_json_or_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    assert main(["count", str(tmp_path / "a.txt"), "--option", "retries=2"]) == 0
    with pytest.raises(SystemExit):
        main(["count", str(tmp_path / "a.txt"), "--option", "retries"])
    assert "'retries' is not NAME=VALUE" in capsys.readouterr().err


def test_any_value_has_a_form_in_json() -> None:
    element = {
        "array": np.arange(3, dtype=np.int16),
        "bytes": b"\xff\x00",
        "number": np.float32(0.5),
        "nothing": float("nan"),
        "inner": ({"a": None}, [True]),
        "time": np.datetime64("2024-01-01"),
    }
    assert json.loads(as_json(element)) == {
        "array": [0, 1, 2],
        "bytes": {"base64": "/wA="},
        "number": 0.5,
        "nothing": None,
        "inner": [{"a": None}, [True]],
        "time": "2024-01-01",
    }


def test_times_and_durations_are_text_in_every_unit() -> None:
    times = np.array(["2020-09-13T12:26:40.123456789", "NaT"], "datetime64[ns]")
    element = {"times": times, "later": np.datetime64("20000-01-01"), "gap": np.timedelta64(1, "ns"), "one": times[0]}
    assert json.loads(as_json(element)) == {
        "times": ["2020-09-13T12:26:40.123456789", None],
        "later": "20000-01-01",
        "gap": "1 nanoseconds",
        "one": "2020-09-13T12:26:40.123456789",
    }
    assert as_text({"one": times[0]}) == "{one: '2020-09-13T12:26:40.123456789'}"


def test_long_values_are_cut_in_text() -> None:
    assert as_text({"image": bytes(1000)}).endswith("... (1,000 bytes)}")
    assert as_text(np.zeros((3, 4), np.uint8)) == "uint8[3, 4]"
    assert as_text(np.arange(3)) == "[0, 1, 2]"
    assert len(as_text("x" * 1000)) == 60


def test_a_schema_names_the_type_of_each_value() -> None:
    assert schema_of({"a": 1, "b": {"c": np.zeros((2, 2), np.float32)}, "d": np.int8(1)}) == {
        "a": "int",
        "b.c": "float32[2, 2]",
        "d": "int8",
    }
    assert schema_of(b"x") == {"": "bytes"}


def test_partitions_of_folders_are_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("year=2024/kind=a%2Fb", "year=2025/kind=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / place).mkdir(parents=True)
        parquet.write_table(pa.table({"n": [1]}), tmp_path / place / "x.parquet")
    assert main(["head", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "{n: 1, year: '2024', kind: 'a/b'}\n{n: 1, year: '2025', kind: None}\n"
    assert main(["inspect", str(tmp_path)]) == 0
    assert "partitions=True" in capsys.readouterr().out


def test_characters_that_the_output_cannot_encode_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"é": "😀 ü"}, ensure_ascii=False) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "aiostream_data", "head", str(tmp_path / "a.jsonl")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    for options in ([], ["--json"]):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=True, env=environment)
        assert r"\ud83d\ude00 \u00fc" in done.stdout
    assert json.loads(done.stdout) == {"é": "😀 ü"}


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
def test_the_number_of_records_must_be_positive(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["head", "a.csv", f"-n={number}"])
    assert f"must be an integer of at least 1, got '{number}'" in capsys.readouterr().err


def test_the_call_names_the_only_file_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert main(["inspect", "--json", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["call"] == f"Dataset.from_csv(['{tmp_path}/a.csv'])"
