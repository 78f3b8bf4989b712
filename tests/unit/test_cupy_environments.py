"""The script that runs tests beside real CuPy: what it takes for a machine's limits, and what for a failure."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

NO_WHEEL = """\
ERROR: Could not find a version that satisfies the requirement cupy-cuda12x==13.* (from versions: none)
ERROR: No matching distribution found for cupy-cuda12x==13.*
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "test_cupy.py"))


def environment(script: dict[str, Any], folder: Path, requirements: str) -> Any:
    """Return an environment in ``folder`` that is not made yet."""
    file = folder / "requirements-13.txt"
    file.write_text(requirements)
    return script["Environment"]("13", folder / "made", file)


def installed(script: dict[str, Any], folder: Path) -> Any:
    """Return an environment that adds nothing to this one, and is there."""
    made = environment(script, folder, "")
    assert script["install"](made) is None
    return made


def a_test(folder: Path, body: str) -> None:
    (folder / "test_it.py").write_text(f"import os\n\ndef test_it():\n    {body}\n")
    (folder / "pytest.ini").write_text("[pytest]\n")


def test_there_is_an_environment_for_each_file_of_requirements(script: dict[str, Any]) -> None:
    found = script["environments"]()
    assert [one.major for one in found] == ["13", "14"]
    assert [one.folder.name for one in found] == [".venv-cupy13", ".venv-cupy14"]


@pytest.mark.parametrize(
    "said",
    [
        NO_WHEEL,
        "ERROR: HTTPSConnectionPool(host='x'): Max retries exceeded: [Errno -3] Temporary failure in name resolution",
        "ERROR: Could not install packages due to an OSError: ReadTimeoutError\n\n",
    ],
)
def test_a_missing_wheel_or_network_is_told_by_the_last_line_of_pip(script: dict[str, Any], said: str) -> None:
    assert script["why_not"](said) == said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "WARNING: Retrying after ReadTimeoutError\nERROR: [Errno 28] No space left on device",
        "ERROR: ResolutionImpossible: for help visit a page about dependencies",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        "",
    ],
)
def test_what_else_pip_complains_of_is_a_failure(script: dict[str, Any], said: str) -> None:
    with pytest.raises(script["BrokenCheckError"], match="neither for want of a wheel nor of a network"):
        script["why_not"](said)


def test_a_package_that_is_not_to_be_had_is_told_in_a_block_and_fails_nothing(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = environment(script, tmp_path, "aiostream-data-no-such-package\n")
    a_test(tmp_path, "assert False, 'must not be run'")
    assert script["check"]([missing], ["test_it.py"], tmp_path)
    said = capsys.readouterr().out
    assert "!!! NOT CHECKED: the device stage beside CuPy 13" in said
    assert "!!!     ERROR: No matching distribution found for aiostream-data-no-such-package" in said
    assert not missing.stamp.exists(), "the next run tries again"


def test_a_wrong_file_of_requirements_is_a_failure(script: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(script["BrokenCheckError"], match="Invalid requirement"):
        script["install"](environment(script, tmp_path, "no requirement at all\n"))


def test_an_environment_has_the_tools_of_this_one_and_is_told_its_cupy(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = installed(script, tmp_path)
    a_test(tmp_path, "import numpy, aiostream_data; assert os.environ['AIOSTREAM_DATA_CUPY'] == '13'")
    assert script["check"]([made], ["test_it.py"], tmp_path)
    assert "1 passed" in capsys.readouterr().out


def test_a_test_that_fails_fails_the_whole(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = installed(script, tmp_path)
    a_test(tmp_path, "assert False, 'it is wrong'")
    assert not script["check"]([made], ["test_it.py"], tmp_path)
    assert "it is wrong" in capsys.readouterr().out


def test_tests_that_are_gone_fail_the_whole(script: dict[str, Any], tmp_path: Path) -> None:
    a_test(tmp_path, "pass")
    with pytest.raises(script["BrokenCheckError"], match=r"no test matches \['test_gone\.py'\]"):
        script["check"]([installed(script, tmp_path)], ["test_it.py", "test_gone.py"], tmp_path)


def test_an_environment_is_made_once_and_anew_when_its_requirements_change(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = installed(script, tmp_path)
    left = made.folder / "left"
    left.touch()
    assert script["install"](made) is None
    assert left.exists()
    monkeypatch.setattr(sys, "version", "another Python")
    assert script["install"](made) is None
    assert not left.exists()
