"""Brace lists in URLs and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiostream_data import Dataset, PlanError, write_index
from aiostream_data.storage import braces
from aiostream_data.storage.braces import as_one_pattern, expanded, patterns_of
from aiostream_data.storage.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a/b.tar", ["a/b.tar"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{008..010}", ["008", "009", "010"]),
        ("{0..10}", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{a,b}/{1..2}", ["a/1", "a/2", "b/1", "b/2"]),
        ("{a,{1..2}}", ["a", "1", "2"]),
        ("{x{a,b}}", ["{xa}", "{xb}"]),
        ("{a,}", ["a", ""]),
        ("{a}-{}-{1..}-{x..y}", ["{a}-{}-{1..}-{x..y}"]),
        ("[{]a,b}", ["[{]a,b}"]),
        ("{a,b*}.tar", ["a.tar", "b*.tar"]),
    ],
)
def test_brace_lists_stand_for_all_their_choices(pattern: str, names: list[str]) -> None:
    assert expanded(pattern) == names


def test_the_number_of_names_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(braces, "MOST_NAMES", 100)
    for pattern in ("{0..100}", "{1..20}{1..6}", "{00000..99999}{00000..99999}", "{" + "," * 101 + "}"):
        with pytest.raises(PlanError, match="100 names"):
            expanded(pattern)
    with pytest.raises(PlanError, match="inside each other"):
        expanded("{a," * 50 + "}" * 50)


def test_every_source_expands_brace_lists(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"part-{number:02}.txt").write_text(f"{number}\n")
    dataset = Dataset.from_text(f"{tmp_path}/part-{{08..10,00}}.txt")
    assert list(Dataset.from_text(f"{tmp_path}/part-{{08..10}}.txt")) == ["8", "9", "10"]
    assert list(Dataset.list_files(f"{tmp_path}/part-0{{1,3}}.txt", seed=None)) != []
    with pytest.raises(FileNotFoundError):
        list(dataset)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a[{]1,2}.txt", ["a{1,2}.txt"]),
        ("a[{]1,2[}].txt", ["a{1,2}.txt"]),
        ("{x,y}[{]1..2}", ["x{1..2}", "y{1..2}"]),
        ("https://host/a[{]1,2}.tar", ["https://host/a{1,2}.tar"]),
        ("a[{]1,2}*.txt", ["a[{]1,2}*.txt"]),
        ("[[]{1,2}", ["[[]1", "[[]2"]),
    ],
)
def test_a_brace_in_a_set_is_the_brace_itself(pattern: str, names: list[str]) -> None:
    assert patterns_of(pattern) == names


@pytest.mark.parametrize(
    "name", ["a.txt", "a{1,2}.txt", "a{b}.txt", "a*{1..3}.txt", "[x]{a,b}", "https://h/a{1,2}?q=*"]
)
def test_any_url_has_a_pattern_of_its_own(name: str) -> None:
    (pattern,) = patterns_of(as_one_pattern(name))
    assert pattern == name or compile_pattern(pattern).fullmatch(name)


def test_a_file_with_a_brace_list_in_its_name_can_be_read(tmp_path: Path) -> None:
    for name in ("x{1,2}.txt", "x1.txt", "x2.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    assert list(Dataset.from_text(f"{tmp_path}/x[{{]1,2}}.txt")) == ["x{1,2}.txt"]
    assert list(Dataset.from_text(f"{tmp_path}/x{{1,2}}.txt")) == ["x1.txt", "x2.txt"]
    assert list(Dataset.from_text(f"{tmp_path}/*[{{]*.txt")) == ["x{1,2}.txt"]
    assert list(Dataset.from_text(Dataset.list_files(f"{tmp_path}/*"))) == ["x1.txt", "x2.txt", "x{1,2}.txt"]
    assert sorted(Dataset.open_any(str(tmp_path))) == ["x1.txt", "x2.txt", "x{1,2}.txt"]
    assert list(Dataset.open_any(f"{tmp_path}/x[{{]1,2}}.txt")) == ["x{1,2}.txt"]


def test_every_function_that_takes_patterns_expands_brace_lists(tmp_path: Path) -> None:
    for folder in ("a", "b/deep", "c"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(3):
            (tmp_path / folder / f"{number}.txt").write_text(f"{folder} {number}\n")
    pattern = f"{tmp_path}/{{a,b}}/**/{{0..1}}.txt"
    lines = ["a 0", "a 1", "b/deep 0", "b/deep 1"]
    assert list(Dataset.from_text(pattern)) == lines
    assert [Path(url).name for url in Dataset.list_files(pattern)] == ["0.txt", "1.txt"] * 2
    assert list(Dataset.open_any(pattern)) == lines
    index = tmp_path / "index.jsonl"
    assert write_index(pattern, index) == 4
    assert list(Dataset.from_text(index=index)) == lines
    assert list(Dataset.from_text(f"{tmp_path}/{{a,c}}/0.txt", index=write_all(tmp_path))) == ["a 0", "c 0"]


def write_all(folder: Path) -> Path:
    write_index(f"{folder}/**/*.txt", folder / "all.jsonl")
    return folder / "all.jsonl"
