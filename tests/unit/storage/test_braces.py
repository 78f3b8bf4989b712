"""Brace lists in URLs and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiostream_data import Dataset, PlanError
from aiostream_data.storage import braces
from aiostream_data.storage.braces import expanded


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
