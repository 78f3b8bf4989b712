"""Every program on a page runs as it is written, or is marked with what it needs and checked as far as that goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, hub_server
from page_files import write_files
from page_names import unknown_names
from pages import PAGES, ROOT, all_programs, blocks, programs
from running import Servers, check, missing, run

PROGRAMS = all_programs()
PAGES_WITH_PROGRAMS = sorted({program.page for program in PROGRAMS})
LIKE_PYTHON = re.compile(r"^(import|from) \w|^dataset = |^def ", re.MULTILINE)


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Servers:
    return lambda scheme: request.getfixturevalue({"s3": "s3_endpoint", "gs": "gcs_endpoint", "hf": "hub"}[scheme])


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with hub_server() as server:
        yield server


@pytest.mark.parametrize("page", PAGES_WITH_PROGRAMS)
def test_the_programs_of_a_page_run_in_order(page: str, tmp_path: Path, servers: Servers) -> None:
    for program in programs(page, (ROOT / page).read_text()):
        for pattern in program.files:
            write_files(pattern, tmp_path, servers)
        if not missing(program):
            check(program, run(program, tmp_path, servers))


@pytest.mark.parametrize("page", PAGES_WITH_PROGRAMS)
def test_programs_use_what_the_package_has(page: str) -> None:
    for program in programs(page, (ROOT / page).read_text()):
        assert unknown_names(program.source, page) == []


def test_what_may_not_run_here_is_known() -> None:
    """A program with a new need is a number here: nothing is left out unnoticed."""
    assert Counter(program.modules for program in PROGRAMS if program.modules) == {
        ("torch",): 5,
        ("h5py",): 1,
        ("soundfile",): 1,
        ("av",): 1,
        ("deltalake",): 1,
        ("pyiceberg", "sqlalchemy"): 1,
        ("tensorflow",): 11,
        ("webdataset", "torch"): 2,
        ("grain",): 3,
        ("datasets",): 1,
        ("datasets", "pyarrow"): 1,
    }


def test_no_block_is_python_under_another_name() -> None:
    found = [
        f"{page}:{block.line}"
        for page in PAGES
        for block in blocks((ROOT / page).read_text())
        if block.language != "python" and LIKE_PYTHON.search(block.text)
    ]
    assert found == []
