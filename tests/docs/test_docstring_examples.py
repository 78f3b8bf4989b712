"""Programs in docstrings: an example runs as it is written, and no other names anything that is not there."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_names import unknown_names
from pages import ROOT, Program
from running import check, run

LITERAL = re.compile(r"^( *)(\S.*)?::\n\n((?:\1 +.*\n|\n)+)", re.MULTILINE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def literals() -> Iterator[tuple[str, Program]]:
    """Yield the sentence that leads to each literal block of a docstring, and the block, where it is Python."""
    for path in sorted((ROOT / "aiostream_data").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            docstring = ast.get_docstring(node, clean=False) if isinstance(node, DOCUMENTED) else None
            for _, sentence, text in LITERAL.findall(inspect.cleandoc(docstring or "") + "\n"):
                source = textwrap.dedent(text)
                if is_python(source):
                    line = getattr(node, "lineno", 1)
                    yield sentence, Program(path.relative_to(ROOT).as_posix(), line, source)


def is_python(source: str) -> bool:
    try:
        return any(isinstance(node, (ast.Call, ast.ClassDef)) for node in ast.walk(ast.parse(source)))
    except SyntaxError:
        return False


FOUND = list(literals())
EXAMPLES = [program for sentence, program in FOUND if sentence.startswith("Example")]


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda program: f"{Path(program.page).stem}-{program.line}")
def test_an_example_runs(program: Program, tmp_path: Path) -> None:
    def none(scheme: str) -> object:
        raise AssertionError(f"an example of a docstring needs a server of {scheme}")

    check(program, run(program, tmp_path, none))  # type: ignore[arg-type]


def test_docstrings_use_what_the_package_has() -> None:
    assert len(FOUND) > len(EXAMPLES) > 5
    assert [name for _, program in FOUND for name in unknown_names(program.source, program.page)] == []
