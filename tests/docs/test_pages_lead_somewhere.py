"""Links, headings, files and commands that pages name are there."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator

import pytest
from changed_package import changes
from pages import PAGES, ROOT

from aiostream_data.cli.main import main

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)
SCRIPT = re.compile(r"\b(?:examples|benchmarks|tests|docker|\.ci|aiostream_data)/[\w./]*\.(?:py|json|txt|yaml|md|cu)\b")
MODULE = re.compile(r"(?:cd (\S+) && )?\S*python[\d.]* -m ([a-z_.]+\w)")
MADE_LATER = re.compile(r"benchmarks/gpu/results/|benchmarks/results/p5\.json")
"""What the page says will be written."""


def prose(page: str) -> str:
    return FENCED.sub("", (ROOT / page).read_text())


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = sum(each == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", each) is not None for each in found)
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def broken_links(page: str) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists():
            yield link
        elif anchor and anchor not in anchors(target.resolve().relative_to(ROOT).as_posix()):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_page_and_to_a_heading_of_it(page: str) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(SCRIPT.findall(text)) - {change.path for change in changes(text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists() and not MADE_LATER.match(name)] == []


def test_targets_of_make_are_there() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    used = {(page, target) for page in PAGES for target in re.findall(r"[`\n]make ([a-z][\w-]*)", _text(page))}
    assert len(used) > 5
    assert [each for each in sorted(used) if each[1] not in targets] == []


def test_modules_that_are_run_are_there() -> None:
    ran = {(page, *found) for page in PAGES for found in MODULE.findall(_text(page))}
    assert len(ran) > 10
    assert [each for each in sorted(ran) if not is_module(each[2], each[1] or ".")] == []


def is_module(name: str, folder: str) -> bool:
    return (ROOT / folder / name).is_dir() or importlib.util.find_spec(name) is not None


def test_commands_of_the_package_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    used = {command for page in PAGES for command in re.findall(r"[`\n]aiostream-data ([a-z]\w*)", _text(page))}
    used |= {command for page in PAGES for command in re.findall(r"-m aiostream_data ([a-z]\w*)", _text(page))}
    assert "doctor" in used
    for command in used:
        with pytest.raises(SystemExit) as asked:
            main([command, "--help"])
        assert asked.value.code == 0, command


def test_extras_that_are_installed_are_declared() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    text = "\n".join(map(_text, PAGES))
    used = {name for names in re.findall(r"(?:aiostream-data|'\.)\[([\w,]+)\]", text) for name in names.split(",")}
    assert {"s3", "zstd"} <= used
    assert used <= declared


def _text(page: str) -> str:
    return (ROOT / page).read_text()
