"""The tests that need a GPU, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.hardware import ROOT, Hardware
from benchmarks.gpu.recorder import Recorder

SLOWEST = 8
SAID_CHARACTERS = 40_000


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Run them and note what passed, failed and was skipped, with the reasons."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        said = Path(folder) / "said.txt"
        command = [sys.executable, "-m", "pytest", "tests/gpu", "-m", "gpu", "-v", "-p", "no:cacheprovider"]
        command += ["--no-header", "--tb=short", f"--junitxml={report}", "--durations", str(SLOWEST)]
        with said.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            try:
                exit_code = process.wait(max(recorder.left_s, 1))
            finally:
                process.kill()  # which does nothing when it has ended
                recorder.put(said=said.read_text(errors="replace")[-SAID_CHARACTERS:])
        recorder.put(exit_code=exit_code, **counts(ElementTree.parse(report).getroot()))


def counts(report: ElementTree.Element) -> dict[str, Any]:
    """Return how many tests of a JUnit report passed, and the names of those that did not, with the reason."""
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    cases = list(report.iter("testcase"))
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        for outcome in case:
            if outcome.tag in ("failure", "error"):
                failed[name] = (outcome.get("message") or "")[:500]
            elif outcome.tag == "skipped":
                skipped[name] = (outcome.get("message") or "")[:500]
    passed = len(cases) - len(failed) - len(skipped)
    return {"passed": passed, "failed": failed, "skipped": skipped}
