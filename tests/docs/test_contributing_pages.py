"""The changes that the pages for contributors describe are complete: their own tests pass in a changed copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from changed_package import Change, apply, changes, copy_of_the_package
from pages import PAGES, ROOT

CONTRIBUTING = [page for page in PAGES if page.startswith("docs/contributing/")]


def run(root: Path, *arguments: str) -> None:
    """Run a module of Python in a changed copy; it has to succeed."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_page_for_an_operator() -> None:
    assert "docs/contributing/add_an_operator.md" in CONTRIBUTING


@pytest.mark.parametrize("page", CONTRIBUTING)
def test_the_change_of_a_page_passes_its_own_tests(page: str, tmp_path: Path) -> None:
    copy_of_the_package(tmp_path)
    described = list(changes((ROOT / page).read_text()))
    for change in described:
        apply(change, tmp_path)
    tests = [change.path for change in described if change.path.startswith("tests/")]
    assert tests, "a page ends with tests of its change"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", *tests)


def test_a_change_names_one_line_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\ntwo\n")
    apply(Change("a.py", "after", "one", "1.5\n"), tmp_path)
    apply(Change("a.py", "before", "one", "0.5\n"), tmp_path)
    assert (tmp_path / "a.py").read_text() == "0.5\none\n1.5\ntwo\ntwo\n"
    for line in ("two", "three"):
        with pytest.raises(ValueError, match="instead of one"):
            apply(Change("a.py", "after", line, "x\n"), tmp_path)
    with pytest.raises(ValueError, match="is there already"):
        apply(Change("a.py", "", "", "x\n"), tmp_path)
