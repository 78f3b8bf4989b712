"""Run the tests of the device stage beside real CuPy, which needs no GPU: once for each file of requirements.

Every environment borrows pytest, NumPy and this package from the one that runs this script, and adds CuPy, NVRTC and
JAX. Where these cannot be had (no wheel for this machine, no network) that is said loudly, and is no failure. Anything
else that goes wrong is one: a broken environment checks nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

TESTS: Final = (
    "tests/real_cupy",
    "tests/gpu",
    "tests/unit/device/test_device_*.py",
    "tests/integration/test_device_*.py",
    "tests/integration/test_elements_of_installed_libraries.py",
)

MAJOR_VARIABLE: Final = "AIOSTREAM_DATA_CUPY"
"""Tells the tests which major version of CuPy they have to find, so that none is skipped for want of it."""

_CANNOT_BE_HAD: Final = re.compile(
    r"No matching distribution found|NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|"
    r"Connection (refused|reset|aborted|timed out)|Network is unreachable|name resolution|IncompleteRead|"
    r"incomplete-download|HTTP error 5\d\d",
    re.IGNORECASE,
)
"""What pip says where a machine has no wheel or no network. Whatever else it says is a failure."""


class Environment(NamedTuple):
    """A virtual environment that adds packages to this one.

    Attributes:
        major: Major version of its CuPy.
        folder: Where it stands.
        requirements: File that lists what it adds.
    """

    major: str
    folder: Path
    requirements: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / ".installed"

    def contents(self) -> str:
        """Return all that decides what is in it: it is made anew where its stamp says otherwise."""
        return f"{sys.version}\n{_tools()}\n{self.requirements.read_text()}"


class BrokenCheckError(Exception):
    """The check cannot run, for a reason that is not of the machine or its network."""


def environments(root: Path = ROOT) -> list[Environment]:
    """Return one environment for each ``requirements-N.txt``."""
    files = sorted((root / "tests" / "real_cupy").glob("requirements-*.txt"))
    majors = [(file.stem.partition("-")[2], file) for file in files]
    return [Environment(major, root / f".venv-cupy{major}", file) for major, file in majors]


def _tools() -> str:
    return sysconfig.get_path("purelib")


def install(environment: Environment) -> str | None:
    """Make an environment, unless it is there; return why its packages cannot be had, or None.

    Raises:
        BrokenCheckError: It failed otherwise.
    """
    if environment.stamp.exists() and environment.stamp.read_text() == environment.contents():
        return None
    _make(environment)
    command = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "-r", str(environment.requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        environment.stamp.write_text(environment.contents())
        return None
    return why_not(done.stdout + done.stderr)


def _make(environment: Environment) -> None:
    command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokenCheckError(f"{environment.folder.name} could not be made:\n{done.stdout}{done.stderr}")
    (packages,) = environment.folder.glob("lib/python3.*/site-packages")
    # Behind its own packages; and with what installed this package for development.
    (packages / "tools.pth").write_text(f"import site; site.addsitedir({_tools()!r})\n")


def why_not(said: str) -> str:
    """Return pip's last line, where what it said means that packages cannot be had here.

    Raises:
        BrokenCheckError: It means anything else.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # Warnings do not count: a read that timed out may have been tried again, and have succeeded.
    telling = [line for line in lines if line.startswith("ERROR")] + lines[-1:]
    if not any(_CANNOT_BE_HAD.search(line) for line in telling):
        raise BrokenCheckError(f"pip failed, and neither for want of a wheel nor of a network:\n{said}")
    return lines[-1]


def run_tests(environment: Environment, tests: Sequence[str] = TESTS, root: Path = ROOT) -> subprocess.Popen[str]:
    """Start pytest in an environment."""
    command = [str(environment.python), "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *_paths(tests, root)]
    started = {**os.environ, MAJOR_VARIABLE: environment.major}
    return subprocess.Popen(command, cwd=root, env=started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _paths(tests: Sequence[str], root: Path) -> list[str]:
    found = {pattern: sorted(map(str, root.glob(pattern))) for pattern in tests}
    if nothing := [pattern for pattern, paths in found.items() if not paths]:
        raise BrokenCheckError(f"no test matches {nothing}")
    return [path for paths in found.values() for path in paths]


def unchecked(environment: Environment, reason: str) -> str:
    """Return the block that says that nothing was checked in an environment."""
    rule = "!" * 100
    return (
        f"{rule}\n"
        f"!!! NOT CHECKED: the device stage beside CuPy {environment.major}: its calls, names and kernels\n"
        f"!!! The packages of {environment.requirements.name} cannot be installed here. pip says:\n"
        f"!!!     {reason}\n"
        f"{rule}"
    )


def check(chosen: Sequence[Environment], tests: Sequence[str] = TESTS, root: Path = ROOT) -> bool:
    """Install all environments at once, then run the tests in all at once; tell whether nothing failed."""
    started = time.monotonic()
    with ThreadPoolExecutor() as pool:
        reasons = list(pool.map(install, chosen))
    print(f"environments are there after {time.monotonic() - started:.0f} s", flush=True)
    both = list(zip(chosen, reasons, strict=True))
    running = {one.major: run_tests(one, tests, root) for one, reason in both if reason is None}
    for major, process in running.items():
        said, _ = process.communicate()
        print(f"----- beside CuPy {major}\n{said}", flush=True)
    for one, reason in both:  # last, where it is seen
        if reason is not None:
            print(unchecked(one, reason), flush=True)
    return all(process.returncode == 0 for process in running.values())


def main() -> None:
    try:
        passed = check(environments())
    except BrokenCheckError as error:
        sys.exit(str(error))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
