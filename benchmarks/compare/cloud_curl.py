"""curl --parallel: the C client that everybody has. Bodies go to /dev/null, and into files while they are checked."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare.cloud_passes import path_of
from benchmarks.pipeline.cloud_work import CannotError, Cell, Check, Client, Part, Pass, Place

IMPORTS = ("subprocess",)


def versions() -> dict[str, str]:
    """Return curl's version."""
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=False).stdout
    return {"curl": told.split()[1]} if told else {}


def open_client(place: Place, cell: Cell) -> Client:
    """Open it: a program for each pass.

    Raises:
        CannotError: It is not installed.
    """
    if shutil.which("curl") is None:
        raise CannotError("curl is not installed")
    return _opened(place, cell)


@contextmanager
def _opened(place: Place, cell: Cell) -> Iterator[Pass]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def read_all(parts: Sequence[Part], check: Check | None) -> None:
            settings = folder / "settings"
            targets = [folder / str(number) if check else Path("/dev/null") for number in range(len(parts))]
            requests = [
                f'url = "{path_of(place, part)}"\noutput = "{target}"\nfail\n'
                + ("" if part.is_whole else f"range = {part.start}-{part.start + part.nbytes - 1}\n")
                + (f'cacert = "{place.authority}"\n' if place.authority else "")
                for part, target in zip(parts, targets, strict=True)
            ]
            settings.write_text("next\n".join(requests))
            command = [
                "curl",
                "--no-progress-meter",
                "--parallel",
                "--parallel-immediate",
                "--parallel-max",
                str(cell.at_once),
            ]
            subprocess.run([*command, "--config", str(settings)], check=True)
            if check:
                for part, target in zip(parts, targets, strict=True):
                    check(part, target.read_bytes())
                    target.unlink()

        yield read_all
