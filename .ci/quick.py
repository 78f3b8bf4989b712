"""Run the unit tests of the rooms that differ from main, and changed test files: ``make quick``.

``tests/unit`` mirrors the package, so a room's tests are in the folder of the same path. Tests further away, such as
those of integration, run only where they changed themselves. `make test` runs everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LINKS: Final = "tests/docs/test_pages_lead_somewhere.py"
OF_CI: Final = ("tests/unit/test_tree_rules.py", "tests/unit/test_ci_scripts.py")
OTHER_MACHINES: Final = ("tests/gpu/", "tests/real_cupy/")
ALONE: Final = "tests/lifecycle/"
"""Tests that measure time or memory, or end processes: nothing runs beside them."""


@dataclass
class Selection:
    """Test files to run, and changed files that no test was selected for."""

    beside: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)
    without: list[str] = field(default_factory=list)


def select(changed: Iterable[str], root: Path) -> Selection:
    """Choose test files of the tree for the changed paths."""
    chosen = Selection()
    for path in sorted(changed):
        tests = tests_of(path, root)
        if not tests:
            chosen.without.append(path)
        elif path.startswith(ALONE):
            chosen.alone |= tests
        else:
            chosen.beside |= tests
    return chosen


def tests_of(path: str, root: Path) -> set[str]:
    """Return the test files to run for one changed path."""
    pure = PurePosixPath(path)
    if pure.parts[0] == "aiostream_data" and pure.suffix != ".md":
        return tests_of_room(PurePosixPath("tests/unit", *pure.parts[1:-1]), root)
    if pure.parts[0] == "tests":
        is_test = pure.name.startswith("test_") and pure.suffix == ".py" and not path.startswith(OTHER_MACHINES)
        return {path} if is_test and (root / path).exists() else set()
    if pure.suffix == ".md":
        return {LINKS}
    if pure.parts[0] == ".ci" or path in ("Makefile", "pyproject.toml"):
        return set(OF_CI)
    return set()


def tests_of_room(room: PurePosixPath, root: Path) -> set[str]:
    """Return the test files directly in a folder of tests/unit, or in the nearest folder above that has some."""
    found = {path.relative_to(root).as_posix() for path in (root / room).glob("test_*.py")}
    return found or (set() if room == PurePosixPath("tests/unit") else tests_of_room(room.parent, root))


def changed_paths() -> list[str]:
    """Return what differs from where this branch left main: committed, uncommitted, or not yet added."""
    bases = (_git("merge-base", "HEAD", name) for name in ("main", "origin/main"))
    base = next((lines[0] for lines in bases if lines), "HEAD")
    differing = _git("diff", "--name-only", "--no-renames", base)
    return sorted({*differing, *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> None:
    chosen = select(changed_paths(), ROOT)
    for title, paths in (("runs", chosen.beside), ("runs alone", chosen.alone), ("has no tests here", chosen.without)):
        for path in sorted(paths):
            print(f"{title}: {path}")
    if not chosen.beside and not chosen.alone:
        print("no test belongs to the files that differ from main")
    print("other tests do not run; `make test` runs all tests", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x"]
    runs = [([*pytest, "-n", "auto", "--dist", "loadfile"], chosen.beside), (pytest, chosen.alone)]
    for command, paths in runs:
        if paths and (code := subprocess.run([*command, *sorted(paths)], cwd=ROOT, check=False).returncode):
            sys.exit(code)


if __name__ == "__main__":
    main()
