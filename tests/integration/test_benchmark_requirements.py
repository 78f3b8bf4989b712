"""The pinned requirements of the benchmarks can be installed. Resolving them needs minutes and a package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FILES = sorted(BENCHMARKS.glob("requirements*.txt"))
RESOLVE = ["-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--disable-pip-version-check"]
MOST_S = 300


@pytest.mark.skipif("ASD_EXAMPLES" not in os.environ, reason="make test-long resolves the pinned versions")
@pytest.mark.timeout(MOST_S + 10)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_pinned_versions_of_an_environment_do_not_exclude_each_other(file: Path) -> None:
    run = subprocess.run(
        [sys.executable, *RESOLVE, "-r", str(file)], capture_output=True, text=True, check=False, timeout=MOST_S
    )
    if "(from versions: none)" in run.stderr:
        pytest.skip(f"the package index cannot say: {run.stderr.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stderr[-2_000:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_requirement_is_pinned_to_one_version(file: Path) -> None:
    wanted = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert wanted
    assert [line for line in wanted if "==" not in line] == []


def test_every_environment_is_made_by_the_one_command() -> None:
    (rule,) = (
        line for line in (BENCHMARKS.parent / "Makefile").read_text().splitlines() if "bench-environments:" in line
    )
    for file in FILES:
        suffix = file.stem.removeprefix("requirements")
        assert f".venv-bench{suffix}/.installed" in rule.split()
