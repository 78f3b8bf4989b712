"""Type checkers know what a pipeline gives: mypy and pyright are asked in strict mode, as a user's check would be."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

from aiostream_data import Dataset

PIPELINE = """
from typing import Any, assert_type
import numpy as np
from numpy.typing import NDArray
import aiostream_data as asd

def decode(record: dict[str, Any]) -> tuple[NDArray[np.float32], int]:
    return np.frombuffer(record["image"], np.float32), int(record["label"])

records = asd.Dataset.from_tfrecord("s3://bucket/*.tfrecord")
batches = (
    records.parse_example({"image": asd.FixedLen((), bytes), "label": asd.FixedLen((), np.int64)})
    .shuffle(100)
    .map(decode)
    .batch(32)
    .prefetch(2)
)
"""

KNOWN = """
assert_type(records, asd.Dataset[bytes])
assert_type(asd.Dataset.from_text("*.txt").map(len), asd.Dataset[int])
for images, labels in batches:
    assert_type(images, NDArray[np.float32])
    assert_type(labels, NDArray[np.int64])
with batches.open() as loader:
    for batch in loader:
        assert_type(batch, tuple[NDArray[np.float32], NDArray[np.int64]])
"""

WRONG = """
for images, labels in batches:
    assert_type(images, NDArray[np.int64])
"""

EXPRESSIONS = Path(__file__).with_name("typed_expressions.py")
"""Expressions of every constructor and operator, with their types."""

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs are written, and what mypy learned of NumPy is kept from one test to the next."""
    return tmp_path_factory.mktemp("typed")


@pytest.fixture(autouse=True)
def where_mypy_finds_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # it does not see editable installs


def check(program: str, folder: Path) -> tuple[str, int]:
    """Return what mypy reports, and its exit status."""
    source = folder / "program.py"
    source.write_text(program)
    report, crash, status = api.run(
        ["--strict", f"--cache-dir={folder / 'cache'}", "--follow-imports=silent", str(source)]
    )
    assert crash == ""
    return report, status


@pytest.mark.timeout(300)
def test_r46_the_type_of_a_batch_follows_from_the_chain(folder: Path) -> None:
    report, status = check(PIPELINE + KNOWN, folder)
    assert status == 0, report


@pytest.mark.timeout(300)
def test_a_wrong_idea_of_a_batch_is_an_error_of_types(folder: Path) -> None:
    report, status = check(PIPELINE + WRONG, folder)
    assert status == 1
    assert "assert-type" in report


@pytest.mark.timeout(300)
def test_every_constructor_and_operator_gives_the_type_of_its_elements(folder: Path) -> None:
    report, status = check(EXPRESSIONS.read_text(), folder)
    assert status == 0, report


PYRIGHT = {
    "include": ["*.py"],
    "extraPaths": [str(ROOT)],
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,  # which are mypy's
    "reportUnnecessaryTypeIgnoreComment": True,  # so that every wrong program is reported
    # Functions receive tuples as several arguments. Therefore parameters of lambdas have no known type.
    "reportUnknownLambdaType": False,
    "reportUnknownArgumentType": False,
    "reportUnknownMemberType": False,
}
"""Configuration of pyright."""


@pytest.mark.timeout(300)
def test_pyright_knows_what_pipelines_constructors_and_operators_give(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    (tmp_path / "pipeline.py").write_text(PIPELINE + KNOWN)
    (tmp_path / "expressions.py").write_text(EXPRESSIONS.read_text())
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    offline = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # asks for no newer version
    done = subprocess.run(command, env=offline, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 errors" in done.stdout


def test_expressions_name_every_public_method() -> None:
    tree = ast.parse(EXPRESSIONS.read_text())
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    public = {name for name in dir(Dataset) if not name.startswith("_")} - {"plan", "carried_options"}
    assert public - named == set()
    typed = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "assert_type"]
    assert len(typed) >= 200
