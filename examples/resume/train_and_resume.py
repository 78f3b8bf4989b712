"""Train, be killed in the middle of it, start again, and go on with exactly the rows that were left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import aiostream_data as asd

FILES, ROWS, BATCH, EPOCHS = 4, 500, 32, 2
UNTRAINED: dict[str, Any] = {"step": 0, "model": [0.0, 0.0], "data": None}


def write_files(folder: Path) -> None:
    points = np.linspace(-1, 1, FILES * ROWS).reshape(FILES, ROWS)
    for number, xs in enumerate(points):
        (folder / f"points-{number}.txt").write_text("".join(f"{x} {3 * x - 1}\n" for x in xs))


def is_positive(line: str) -> bool:
    return not line.startswith("-")


def parse(line: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.array(line.split(), float) + rng.normal(scale=0.01, size=2)  # noise: drawn the same when resumed


def training_data(folder: Path) -> asd.Dataset[Any]:
    lines = asd.Dataset.from_text(f"{folder}/points-*.txt", cycle_length=2, shuffle_shards=True)
    return lines.filter(is_positive).shuffle(300).repeat(EPOCHS).map(parse).batch(BATCH)


def train(folder: Path, checkpoint: Path, killed_after: int) -> None:
    """Train to the end of the data, from the checkpoint on if there is one."""
    saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else UNTRAINED
    step, model = saved["step"], np.array(saved["model"])
    with training_data(folder).open(saved["data"], seed=1) as loader:
        for batch in loader:
            x, y = batch.T
            error = model[0] * x + model[1] - y
            model -= 0.5 * np.array([(error * x).mean(), error.mean()])
            step += 1
            if step == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)
            new = checkpoint.with_suffix(".new")
            new.write_text(json.dumps({"step": step, "model": model.tolist(), "data": loader.state_dict()}))
            new.replace(checkpoint)  # either the old checkpoint or the new one is there, never half of one
        print(json.dumps({"step": step, "model": model.tolist(), "stream_hash": loader.stream_hash}))


def start(folder: Path, checkpoint: str, killed_after: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, str(folder), str(folder / checkpoint), str(killed_after)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        unbroken = start(folder, "unbroken.json").stdout
        for step in (20, 50):
            assert start(folder, "killed.json", killed_after=step).returncode == -signal.SIGKILL
            print(f"killed in step {step}, saved: {(folder / 'killed.json').stat().st_size:,} bytes of model and data")
        resumed = start(folder, "killed.json").stdout
    print(f"never killed:  {unbroken}killed twice:  {resumed}", end="")
    assert json.loads(unbroken)["step"] == EPOCHS * FILES * ROWS // 2 // BATCH + 1
    assert resumed == unbroken


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])) if sys.argv[1:] else main()
