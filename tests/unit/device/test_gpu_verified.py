"""What is said of GPUs, by doctor, by the README and by the record of the last run, is one and the same thing."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from fake_cupy import FakeCuda, install

from aiostream_data.cli import doctor
from aiostream_data.cli.main import main
from aiostream_data.device import verified
from aiostream_data.device.verified import GpuRun, device_code_sha256, device_files, hash_of, read_run, verification

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "aiostream_data" / "device" / verified.RECORD
GPU_WORDS = r"\bGPUs?\b|\bCUDA\b|\bCuPy\b|\b[AHBL]\d{2,3}\b|\bNVIDIA\b|\bpinned\b"
FIGURE = r"\d[\d.,]*\s?(?:[GM]i?B/s|batch(?:es)?/s|images/s|[mµu]s\b|%|x\b)"
NOT_CLAIMED = {"never": "(?:never|not) run on a GPU", "changed": "changed since the last GPU run"}


def run_of(sha256: str) -> GpuRun:
    return GpuRun(sha256, "NVIDIA H200", {"driver": "580"}, {"cupy": "14.2.0"}, "2026-12-01", "benchmarks/x.json")


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: GpuRun | None) -> None:
    """Make the package's record say ``run`` for the rest of a test; the code stays what it is."""
    for name, file in device_files():
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
    (tmp_path / "device" / verified.RECORD).write_text(json.dumps({"last_run": asdict(run) if run else None}))
    monkeypatch.setattr(verified, "_package", lambda: tmp_path)


def test_the_hash_is_over_all_that_talks_to_a_gpu_and_over_nothing_else() -> None:
    names = [name for name, _ in device_files()]
    assert {"device/cuda.py", "device/ring.py", "device/device_slots.py", "device/host_slots.py"} <= set(names)
    assert "device/verified.py" not in names
    assert {name for name in names if not name.startswith("device/")} == {
        "integrations/torch.py",
        "integrations/jax.py",
    }
    present = {f"device/{path.name}" for path in (ROOT / "aiostream_data" / "device").glob("*.py")}
    assert present - set(names) == {"device/verified.py"}


def test_the_hash_changes_with_any_byte_or_name_and_not_with_line_ends() -> None:
    first = [("device/a.py", b"one\ntwo\n"), ("device/b.py", b"")]
    assert hash_of(iter(first)) == hash_of(iter([("device/a.py", b"one\r\ntwo\r\n"), ("device/b.py", b"")]))
    others = [
        [("device/a.py", b"one\ntw0\n"), ("device/b.py", b"")],
        [("device/a.py", b"one\ntwo\n"), ("device/c.py", b"")],
        [("device/a.py", b"one\n"), ("device/b.py", b"two\n")],
        first[:1],
    ]
    assert len({hash_of(iter(files)) for files in [first, *others]}) == 5


def test_code_as_it_ran_is_verified_and_code_that_changed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, monkeypatch, run_of(device_code_sha256()))
    assert str(verification()) == "device code verified on NVIDIA H200 on 2026-12-01"
    with (tmp_path / "device" / "ring.py").open("a") as file:
        file.write("\n")
    assert str(verification()) == "device code changed since the last GPU run (NVIDIA H200 on 2026-12-01)"
    recorded(tmp_path, monkeypatch, None)
    assert str(verification()) == "device code never run on a GPU"


def test_doctor_says_what_the_record_says(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    lines = capsys.readouterr().out.split("\n")
    assert str(verification()) in lines


def test_a_record_names_a_run_whose_results_are_kept() -> None:
    run = read_run(RECORD.read_text())
    if run is None:
        assert verification().status == "never"
        return
    results = json.loads((ROOT / run.results).read_text())
    assert results["passed"] is True
    assert results["device"] == run.gpu
    assert results["device_code_sha256"] == run.sha256
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", run.date)


def claims(text: str) -> list[str]:
    """Return the lines that give a figure for something about GPUs."""
    return [line for line in text.split("\n") if re.search(GPU_WORDS, line) and re.search(FIGURE, line)]


def test_figures_about_gpus_are_recognised() -> None:
    assert claims("| H2D on an H200 | 52.1 GB/s |") != []
    assert claims("a batch takes 0.7 ms to the GPU") != []
    assert claims("GPU idle within 1 % of headspace") != []
    assert claims("Nothing has been measured on a GPU yet.") == []
    assert claims("1,794 images/s on two cores") == []


def test_the_readme_claims_nothing_about_gpus_that_the_record_does_not_back() -> None:
    readme = (ROOT / "README.md").read_text()
    (row,) = re.findall(r"^\| `to_device` on a GPU \| (.*) \|$", readme, re.MULTILINE)
    now = verification()
    if now.status == "verified":
        assert str(now) in row, "the row says on what, and when"
        return
    assert re.search(NOT_CLAIMED[now.status], row), f"the record says: {now}"
    assert claims(readme) == [], f"the record says: {now}"


def test_the_page_about_gpus_says_so_too() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    status = verification().status
    assert ("has never run on a GPU" in page) == (status == "never")
    answers = re.findall(r"^\| U\d+ \|.*\| (.*) \|$", page, re.MULTILINE)
    assert len(answers) == 12
    if status == "never":
        assert set(answers) == {"not settled"}


@pytest.mark.parametrize(
    ("cuda", "said"),
    [
        (FakeCuda(devices=2), "device: cuda:0"),
        (FakeCuda(devices=0), "device: cpu (device 'cuda' cannot be used: the NVIDIA driver shows no GPU"),
        (FakeCuda(driver_status=100), "device: cpu (device 'cuda' cannot be used: the NVIDIA driver shows no GPU"),
        (FakeCuda(driver_status=35), "device: cpu (device 'cuda' cannot be used: no NVIDIA driver is installed"),
        (FakeCuda(driver_status=3), "device: none, since the GPU does not work (device 'cuda' cannot be used: "),
    ],
    ids=["two GPUs", "none shown", "none found", "no driver", "broken driver"],
)
def test_doctor_says_why_there_is_no_gpu(
    cuda: FakeCuda, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(doctor, "CUPY_PACKAGES", ("numpy",))  # any that is installed
    install(monkeypatch, cuda)
    main(["doctor"])
    assert f"\n{said}" in capsys.readouterr().out


def test_doctor_says_that_cupy_is_missing_without_looking_for_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CUPY_PACKAGES", ("a-package-that-nobody-has",))
    cuda = install(monkeypatch, FakeCuda())
    main(["doctor"])
    assert "device: cpu (CuPy is not installed" in capsys.readouterr().out
    assert cuda.log == []
