"""Run a program of a page as its reader would, and hold what it did against what the page says."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hub_server import Hub
from pages import ROOT, Program

from aiostream_data.testing.servers import ObjectServer

LIKE: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
IN_TESTS: Final = {"PYTHONBREAKPOINT": "0", "PYTHONPATH": str(ROOT), "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
KEYS: Final = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
OF_A_LAUNCHER: Final = re.compile(r"RANK|WORLD_SIZE|LOCAL_RANK|SLURM_|OMPI_|PMI")
TORCHRUN: Final = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
LIMIT_S: Final = 60
"""For one program."""

MODULES = {"compression": "compressed"}
"""Other names for the programs of pages that have the name of a module, which the program would replace."""

Servers = Callable[[str], ObjectServer | Hub]
"""The server of a scheme, started when it is first asked for."""


def missing(program: Program) -> list[str]:
    """Return the modules that a program needs and that are not installed."""
    return [name for name in program.modules if importlib.util.find_spec(name) is None]


def run(program: Program, folder: Path, servers: Servers) -> subprocess.CompletedProcess[str]:
    """Run a program as a script in ``folder``, with warnings as errors."""
    stem = Path(program.page).stem
    script = folder / f"{MODULES.get(stem, stem)}.py"
    script.write_text(program.source)
    command = [sys.executable, "-W", "error", script.name]
    places = _environment(program, folder, servers)
    return subprocess.run(command, cwd=folder, env=places, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def _environment(program: Program, home: Path, servers: Servers) -> dict[str, str]:
    """Return the environment of a reader whose stores are the servers of the tests."""
    found = {name: value for name, value in os.environ.items() if not OF_A_LAUNCHER.match(name)}
    found |= {**IN_TESTS, "HOME": str(home)}
    if program.is_launched:
        found |= TORCHRUN
    if any(file.startswith("s3://") for file in program.files):
        found |= {**KEYS, "AWS_ENDPOINT_URL": servers("s3").endpoint_url}
    if any(file.startswith("hf://") for file in program.files):
        found["HF_ENDPOINT"] = servers("hf").endpoint_url
    if any(file.startswith("gs://") for file in program.files):
        found["STORAGE_EMULATOR_HOST"] = servers("gs").endpoint_url
    return found


def check(program: Program, done: subprocess.CompletedProcess[str]) -> None:
    """Hold what a program did against what the page says that it does."""
    where = f"{program.page}:{program.line}"
    assert (done.returncode == 0) == (not program.raises), f"{where}\n{done.stdout}{done.stderr}"
    printed = done.stdout
    if program.raises:
        error = re.search(rf"^(?:\w+\.)*{program.raises}\b.*", done.stderr, re.MULTILINE | re.DOTALL)
        assert error is not None, f"{where}: {program.raises} is not raised\n{done.stderr}"
        printed = error[0]
    if program.prints is not None:
        same = doctest.OutputChecker().check_output(program.prints, printed, LIKE)
        assert same, f"{where} prints\n{printed}\nand the page says\n{program.prints}"
