"""The command line says what an installation can do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from aiostream_data import Dataset, __version__, _native
from aiostream_data._native import notice
from aiostream_data.cli import doctor
from aiostream_data.cli.main import main


def test_doctor_names_versions_native_core_extras_and_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"aiostream_data {__version__}, Python {sys.version_info.major}.")
    assert "native core: " in said
    assert [extra for extra in doctor.EXTRAS if f"extra {extra}: " not in said] == []
    assert "device: " in said


def test_doctor_knows_every_extra_that_brings_packages_for_users() -> None:
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extras = declared["project"]["optional-dependencies"]
    told = {extra: {re.match(r"[\w-]+", package)[0] for package in extras[extra]} for extra in doctor.EXTRAS}  # type: ignore[index]
    assert told == {extra: set(packages) for extra, packages in doctor.EXTRAS.items()}
    others = {"cupy12", "cupy13", "demo", "bench", "dev", "servers", "all"}  # of the device, and of those who test
    assert set(extras) == {*doctor.EXTRAS, *others}


def test_doctor_is_a_module_too_and_may_be_cut_short_by_who_reads_it() -> None:
    command = [sys.executable, "-m", "aiostream_data", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\nnative core: " in done.stdout
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_doctor_says_how_to_get_an_extra_that_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "s3", ("a-package-that-nobody-has",))
    main(["doctor"])
    assert "a-package-that-nobody-has not installed: pip install 'aiostream-data[s3]'" in capsys.readouterr().out


@pytest.mark.parametrize(("built", "words"), [(True, "built, CRC-32C in"), (False, "NOT built")])
def test_doctor_says_whether_the_native_core_was_built(
    built: bool, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "HAVE_NATIVE", built)
    main(["doctor", "--native"])
    said = capsys.readouterr().out
    assert words in said
    assert said.count("\n") == 1


def test_doctor_loads_no_cloud_sdk() -> None:
    program = "import sys; from aiostream_data.cli.main import main; main(['doctor']); print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"s3fs", "gcsfs", "aiohttp", "fsspec"} & set(run.stdout.split("\n")) == set()


def test_the_installed_command_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == f"aiostream-data {__version__}\n"


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([])
    assert exit.value.code == 2
    assert "required" in capsys.readouterr().err


def test_running_without_the_native_core_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "HAVE_NATIVE", False)
    notice.warn_without_native_core.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            Dataset.range(1).open().close()
    assert ["without its native core" in str(warning.message) for warning in told] == [True]
    assert told[0].filename == __file__
