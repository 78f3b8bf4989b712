"""Run every static check, several at a time, and print the output of each in a block: ``make check``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
PYTHON_FOLDERS: Final = ("aiostream_data", "tests", "examples", ".ci", "benchmarks")
TEXTS: Final = (*PYTHON_FOLDERS, "docs", "docker", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")

CHECKS: Final = {
    "types": ("mypy", *PYTHON_FOLDERS),
    "import contracts": ("lint-imports",),
    "links of pages": ("python", "-m", "pytest", "-q", "tests/docs/test_pages_lead_somewhere.py"),
    "Dockerfiles": ("hadolint", "docker/Dockerfile.cpu", "docker/Dockerfile.cuda"),
    "YAML": ("yamllint", "--strict", "-c", "docker/.yamllint", "docker/compose.yaml", ".pre-commit-config.yaml"),
    "spelling": ("codespell", *TEXTS, "Makefile", "pyproject.toml"),
    "lint": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
    "public names": ("python", ".ci/check_names.py"),
    "tree": ("python", ".ci/check_tree.py"),
    "structure": ("python", ".ci/check_structure.py"),
    "size": ("python", ".ci/check_size.py"),
}
"""The slowest come first."""


@dataclass(frozen=True)
class Result:
    """How one check ended."""

    title: str
    passed: bool
    output: str
    seconds: float


def run(title: str, command: tuple[str, ...]) -> Result:
    """Run one check from the root of the tree with a tool of this environment."""
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        passed, output = done.returncode == 0, done.stdout
    except FileNotFoundError:
        passed, output = False, f"{command[0]} is not installed: run `make install`"
    return Result(title, passed, output.strip(), time.perf_counter() - started)


def main() -> None:
    started = time.perf_counter()
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in as_completed([pool.submit(run, title, command) for title, command in CHECKS.items()]):
            result = future.result()
            print(f"== {result.title}: {'ok' if result.passed else 'FAILED'} ({result.seconds:.1f} s)", flush=True)
            if not result.passed:
                failed.append(result.title)
                print(result.output, flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(sorted(failed))}")
    print(f"{len(CHECKS)} checks passed in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
