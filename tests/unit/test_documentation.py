"""The pages name everything there is, and their programs are programs."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiostream_data import Dataset, errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_error_has_its_line() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    kinds = [name for name, value in vars(errors).items() if inspect.isclass(value) and name.endswith("Error")]
    assert len(kinds) > 20
    assert [name for name in kinds if f"`{name}`" not in page and f".{name}`" not in page] == []


def test_every_operation_of_a_data_set_is_compared_with_tf_data() -> None:
    page = (ROOT / "docs" / "tf_data.md").read_text()
    running = {"open", "debug", "explain", "memory_bound", "plan"}
    names = [name for name, _ in inspect.getmembers(Dataset, callable) if not name.startswith("_")]
    assert "from_tfrecord" in names
    assert [name for name in names if name not in running and f"`{name}" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_on_pages_compile(page: Path) -> None:
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        compile(program, f"{page.name}[{number}]", "exec")


@pytest.mark.parametrize(
    "page",
    [
        *("functions.md", "debugging.md", "in_subprocess.md"),
        *("device.md", "device_measures.md", "image_cast.md", "testing_devices.md"),
    ],
)
def test_programs_of_pages_that_need_no_store_run(page: str, tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert programs
    for number, program in enumerate(programs):
        path = tmp_path / f"page_{number}.py"
        path.write_text(program)
        command = [sys.executable, "-W", "error", str(path)]
        places = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONBREAKPOINT": "0"}
        done = subprocess.run(
            command, cwd=tmp_path, env=places, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{page}[{number}]: {done.stderr}"


def test_the_first_program_of_the_readme_describes_a_data_set() -> None:
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(program.split("with dataset.open()")[0], names)
    assert isinstance(names["dataset"], Dataset)
