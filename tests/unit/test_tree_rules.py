"""The check of CI that no stray file lies in the tree."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "check_tree.py"))


@pytest.mark.parametrize(
    "path",
    [
        "a2.out",
        "notes.md",
        "core",
        "test.py",
        "aiostream_data/_native/framing.c",
        "aiostream_data/Notes.py",
        "aiostream_data/plan/base.py.orig",
        "tests/data/big.bin",
        "tests/unit/test_a-b.py",
        "benchmarks/results/p1.txt",
        "docs/picture.png",
        "docs/old/memory.md",
        "scripts/run.sh",
    ],
)
def test_a_file_that_matches_no_rule_is_refused(check: dict[str, Any], path: str) -> None:
    assert check["stray"](["README.md", path]) == [path]


def test_files_of_every_kind_that_the_tree_has_are_accepted(check: dict[str, Any]) -> None:
    kinds = [
        "README.md",
        ".pre-commit-config.yaml",
        "tests/README.md",
        ".ci/run",
        "aiostream_data/py.typed",
        "aiostream_data/_native/framing.pyx",
        "docs/memory.md",
    ]
    kinds += ["tests/data/golden/lists.tfrecord.gz", "benchmarks/requirements.txt", "examples/quickstart/train.py"]
    assert check["stray"](kinds) == []
