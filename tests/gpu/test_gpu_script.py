"""The script for machines with a GPU: that it runs, that parts cannot harm each other, and what it takes for a pass."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_at_hand
import numpy_cupy
import pytest
from fake_cupy import FakeCuda

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from aiostream_data.device.verified import device_code_sha256  # noqa: E402
from benchmarks.gpu import pack, record, run  # noqa: E402
from benchmarks.gpu.contenders import torch_loaders  # noqa: E402
from benchmarks.gpu.findings import QUESTIONS  # noqa: E402
from benchmarks.gpu.hardware import Hardware  # noqa: E402
from benchmarks.gpu.part import FINDINGS, PARTS, Part  # noqa: E402
from benchmarks.gpu.parts import two_gpus  # noqa: E402
from benchmarks.gpu.predictions import PREDICTIONS, judge, written_down  # noqa: E402
from benchmarks.gpu.recorder import Recorder  # noqa: E402
from benchmarks.gpu.second_gpu import objections  # noqa: E402
from benchmarks.gpu.summary import summary  # noqa: E402
from benchmarks.gpu.verdict import still_open, what_failed  # noqa: E402


def run_self_check(names: list[str], folder: Path) -> dict[str, Any]:
    return run.run_all(names, 60, True, folder / "gpu.json")


@pytest.mark.parametrize("name", [name for name in PARTS if name != "suite"])
def test_every_part_runs_without_a_gpu_and_claims_nothing(name: str, tmp_path: Path) -> None:
    result = run_self_check([name], tmp_path)
    assert result["failed"] == []
    assert result["passed"] is False
    assert result["device"] == "none"
    assert json.loads((tmp_path / "gpu.json").read_text()) == result
    assert result["predictions"] == written_down()
    assert name in summary(result)


def test_every_question_is_asked_and_every_prediction_can_be_judged() -> None:
    asked = {word for part in FINDINGS for word in words_of(PARTS[part].module) if word in QUESTIONS}
    assert asked == set(QUESTIONS)
    assert all(outcome == {"measured": None, "held": None} for outcome in judge({}).values())


def words_of(module: str) -> list[str]:
    source = (ROOT / "benchmarks" / "gpu" / "parts" / f"{module}.py").read_text()
    return source.replace('"', " ").split()


def found(**changed: Any) -> dict[str, Any]:
    """Return parts as a run on a GPU would find them, made up."""

    def cell(step_ms: float, idle: float) -> dict[str, Any]:
        return {"step_ms": {"median": step_ms}, "idle": {"median": idle}, "gap_ms": {"median": step_ms * idle}}

    steps = {
        "headspace (cupy)": {"0": cell(0.01, 0), "5": cell(5, 0.01), "20": cell(20.0, 0.001)},
        "ours copy (cupy)": {"0": cell(0.72, 0), "5": cell(5.01, 0.01), "20": cell(20.01, 0.005)},
        "ours lease (cupy)": {"0": cell(0.72, 0), "5": cell(5.01, 0.01), "20": cell(20.0, 0.0015)},
        "torch DataLoader": {"0": cell(4, 0), "5": cell(6, 0.1), "20": cell(21, 0.02)},
    }
    group = {"nbytes": 38_535_168, "steps": steps, "copies": {"h2d_gbps": 53.0}, "errors": {}, "missing": {}}
    small = {**group, "nbytes": 4_064_256, "steps": {}, "copies": {"h2d_gbps": 50.0}}
    ceilings = {name: {"median": 54.0} for name in ("38.5 MB", "4 MB", "154 MB")}
    answers: dict[str, Any] = {key: {"answer": "so", "settled": True, "measured": {}} for key in QUESTIONS}
    parts = {
        "environment": {
            "gpu": "NVIDIA H200",
            "nvidia_smi": {"driver_version": "580.1", "pcie.link.gen.max": "5", "pcie.link.width.max": "16"},
            "driver": 13000,
            "processors": 16,
            "versions": {"cupy-cuda13x": "14.2.0"},
            "circumstances": {"cpu_model": "some", "python": "3.12.3"},
        },
        "ceilings": {"h2d_pinned_by_batch": ceilings, "d2d": {"median": 2000.0}},
        "cuda": answers,
        "suite": {"passed": 30, "failed": {}, "skipped": {}},
        "two_gpus": {"visits": {"copy": {"contexts": [1]}}, "errors": {}, "stages": {"share": 0.97}},
        "loaders": {"38.5 MB": group, "4 MB": small},
        "end_to_end": {"errors": {}},
        **changed,
    }
    return {name: {"ending": "done", "seconds": 1, **part} for name, part in parts.items()}


def test_predictions_are_read_off_the_measurements() -> None:
    judged = judge(found())
    assert {name: outcome["held"] for name, outcome in judged.items()} == dict.fromkeys(PREDICTIONS, True)
    assert judged["ours at 38.5 MB"]["measured"] == pytest.approx(53 / 54, abs=1e-3)
    assert judged["exposed copy"]["measured"] == pytest.approx(0.01 / (38_535_168 / 54 / 1e6), abs=1e-3)
    assert judged["idle"]["measured"] == pytest.approx(0.4)
    assert judged["stray contexts"]["measured"] == 0
    slow = found(ceilings={"h2d_pinned_by_batch": {"38.5 MB": {"median": 30.0}}, "d2d": {"median": 2000.0}})
    assert judge(slow)["ceiling"] == {"measured": 30.0, "held": False}
    assert judge(slow)["ours at 4 MB"]["held"] is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ceilings": {"ending": "ended after 40 s"}}, "ceilings: ended after 40 s"),
        ({"suite": {"passed": 29, "failed": {"t::x": "torn"}, "skipped": {}}}, "test t::x: torn"),
        ({"suite": {"passed": 29, "failed": {}, "skipped": {"t::y": "no torch"}}}, "test t::y was skipped: no torch"),
        ({"suite": {"passed": 0, "failed": {}, "skipped": {}}}, "no test passed"),
        ({"loaders": {"4 MB": {"errors": {"ours copy (cupy)": "torn"}}}}, "ours copy (cupy): torn"),
        ({"end_to_end": {"errors": {"ours, threads": "cut"}}}, "ours, threads: cut"),
        ({"two_gpus": {"errors": {"ours, copy on cuda:1": "contexts"}}}, "ours, copy on cuda:1: contexts"),
    ],
)
def test_a_run_fails_by_any_part_test_or_contender_of_ours(changed: dict[str, Any], said: str) -> None:
    assert what_failed(found(**changed), self_check=False) == [said]


def test_a_run_passes_whatever_becomes_of_other_loaders() -> None:
    others = {"4 MB": {"errors": {"torch DataLoader": "no room in /dev/shm"}, "missing": {"SPDL": "not installed"}}}
    missing = {"U11": {"answer": "not installed", "settled": False, "measured": {"missing": True}}}
    assert what_failed(found(loaders=others, torch=missing), self_check=False) == []


def test_a_question_that_is_open_is_told_and_fails_a_self_check_only_if_it_broke() -> None:
    broke = {"answer": "Traceback", "settled": False, "measured": {"failed": True}}
    unclear = {"answer": "hm", "settled": False, "measured": {}}
    parts = found(cuda={"U3": broke, "U4": unclear})
    assert still_open(parts) == ["U3", "U4"]
    assert what_failed(parts, self_check=False) == []
    assert what_failed(parts, self_check=True) == ["U3: Traceback"]


ONE_GPU = {"skipped": "1 GPU"}


def test_what_needs_two_gpus_is_open_on_a_machine_with_one_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 1)))
    monkeypatch.setattr(gpu_at_hand, "real_cupy", lambda: one)
    with pytest.raises(pytest.skip.Exception) as skipped:
        gpu_at_hand.cupy_of_two_gpus()
    assert str(skipped.value) == "needs two GPUs, this machine has 1"
    parts = found(two_gpus=ONE_GPU, suite={"passed": 30, "failed": {}, "skipped": {"t::two": str(skipped.value)}})
    assert what_failed(parts, self_check=False) == []
    assert still_open(parts) == ["two GPUs"]
    assert judge(parts)["stray contexts"] == {"measured": None, "held": None}


def test_the_part_for_two_gpus_is_skipped_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = numpy_cupy.install(monkeypatch, FakeCuda(devices=1))
    recorder = Recorder(tmp_path / "found.json", 20)
    two_gpus.run(Hardware(stand_in, real=False), recorder)
    assert recorder.found == ONE_GPU
    result = {
        **made_up(),
        "judged": judge({}),
        "predictions": written_down(),
        "circumstances": {"commit": ""},
        "open": [],
    }
    result["parts"] = {"two_gpus": found(two_gpus=ONE_GPU)["two_gpus"]}
    assert "skipped: 1 GPU" in summary(result).splitlines()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"right": False}, ["values were wrong"]),
        ({"contexts": [0, 1]}, ["there are contexts on GPUs [0, 1], and [1] were asked for"]),
        ({"standing": [[0, 0], [0, 7]]}, ["the thread had GPU and context [0, 0], and then [0, 7]"]),
        ({"before": [0], "contexts": [0, 1]}, []),
        ({"standing": [[1, 0], [1, 7]]}, []),
        ({"standing": [[1, 0], [0, 7]]}, ["the thread had GPU and context [1, 0], and then [0, 7]"]),
    ],
)
def test_a_use_of_a_second_gpu_is_objected_to_for_values_contexts_and_what_the_thread_had(
    changed: dict[str, Any], said: list[str]
) -> None:
    visit = {"opened": "cuda:1", "right": True, "before": [], "contexts": [1], "standing": [[0, 0], [0, 0]]}
    assert objections({**visit, **changed}) == said


def test_a_part_that_hangs_or_dies_costs_its_own_answers_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PARTS, "unheard of", Part("unheard_of", 5))
    result = run_self_check(["unheard of", "environment"], tmp_path)
    assert result["parts"]["environment"]["ending"] == "done"
    (failed,) = result["failed"]
    assert failed.startswith("unheard of: exit 2: ")
    hanging = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert run._watched(hanging, 0.2, True) == "ended after 0.2 s"


def made_up() -> dict[str, Any]:
    """Return the result of a run that passed on a GPU, made up."""
    return {
        "passed": True,
        "failed": [],
        "device": "NVIDIA H200",
        "date": "2026-12-01T10:00:00+00:00",
        "device_code_sha256": device_code_sha256(),
        "parts": found(),
    }


def test_only_a_run_that_passed_on_this_very_code_is_recorded() -> None:
    result = made_up()
    kept = record.record_of(result, Path("benchmarks/gpu/results/x.json"))
    assert (kept.gpu, kept.date, kept.machine["link"]) == ("NVIDIA H200", "2026-12-01", "PCIe 5 x16")
    assert kept.versions == {"python": "3.12.3", "cupy-cuda13x": "14.2.0"}
    assert kept.machine["two_gpus"] == "verified"
    one = record.record_of({**result, "parts": found(two_gpus=ONE_GPU)}, Path("x.json"))
    assert one.machine["two_gpus"] == "skipped: 1 GPU"
    with pytest.raises(ValueError, match="the device code has changed"):
        record.record_of({**result, "device_code_sha256": "0"}, Path("x.json"))
    with pytest.raises(ValueError, match="the run did not pass"):
        record.record_of({**result, "passed": False}, Path("x.json"))


def test_a_second_run_of_a_day_keeps_the_results_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "ROOT", tmp_path)
    (tmp_path / "aiostream_data" / "device").mkdir(parents=True)
    names = [Path(record.write_record(made_up(), tmp_path).results).name for _ in range(3)]
    assert names == ["nvidia_h200_2026-12-01.json", "nvidia_h200_2026-12-01_2.json", "nvidia_h200_2026-12-01_3.json"]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "benchmarks" / "gpu" / "results").iterdir())


class RecordingCuda:
    """torch.cuda, of which it is noted what was ordered after what."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = SimpleNamespace(wait_stream=lambda stream: self.log.append("wait for the copies"))

    def Stream(self) -> str:
        return "copying"

    def stream(self, stream: str) -> AbstractContextManager[None]:
        return nullcontext()

    def current_stream(self) -> SimpleNamespace:
        return self.current


class RecordedTensor:
    def __init__(self, number: int, log: list[str]) -> None:
        self.number, self._log = number, log

    def to(self, device: str, non_blocking: bool) -> RecordedTensor:
        self._log.append(f"copy {self.number}")
        return self

    def record_stream(self, stream: object) -> None:
        self._log.append(f"keep {self.number}")


def test_the_side_stream_waits_for_a_batch_before_it_copies_the_next_one() -> None:
    cuda = RecordingCuda()
    torch = SimpleNamespace(cuda=cuda)
    batches = torch_loaders._one_ahead(torch, "cuda:0", (RecordedTensor(number, cuda.log) for number in range(9)))
    assert [next(batches).number for _ in range(2)] == [0, 1]
    assert cuda.log == [
        "copy 0", "wait for the copies", "keep 0", "copy 1",
        "wait for the copies", "keep 1", "copy 2",
    ]  # fmt: skip


def test_a_run_on_a_gpu_is_told_where_its_findings_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 2
    assert "--out is needed" in capsys.readouterr().err


def test_parts_take_less_than_seven_minutes_together() -> None:
    assert sum(part.seconds for part in PARTS.values()) <= 400


@pytest.mark.skipif(not any(map(shutil.which, pack.COMPILERS)), reason="no C compiler")
def test_the_native_core_is_compiled_from_the_c_that_was_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, made = tmp_path / "packed", tmp_path / "made"
    packed.mkdir()
    made.mkdir()
    (packed / "small.c").write_text(
        '#include <Python.h>\nstatic struct PyModuleDef of = {PyModuleDef_HEAD_INIT, "small"};\n'
        "PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&of); }\n"
    )
    (packed / "wrong.c").write_text("not C\n")
    assert list(pack.build(packed, made)) == ["wrong.c"]
    (module,) = made.iterdir()
    assert module.name == f"small{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert list(pack.compile_here(packed)) == ["wrong.c"]
    module.unlink()
    monkeypatch.setattr(pack, "COMPILERS", ("no-such-compiler",))
    assert pack.build(packed, made) == {"wrong.c": "no C compiler"}, "what was compiled before needs no compiler"
    assert module.exists()


def test_without_a_compiler_every_file_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.c").write_text("")
    monkeypatch.setattr(pack, "COMPILERS", ("no-such-compiler",))
    assert pack.build(tmp_path, tmp_path) == {"small.c": "no C compiler"}
