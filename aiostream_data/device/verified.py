"""Return True if the device code of this installation is what last passed its tests on a GPU.

``gpu_verified.json`` beside this file is written by ``benchmarks/gpu/run.py`` when every part of it passed on a
machine with a GPU, and by nothing else. It holds the hash of the code that ran; as soon as that code is another, what
was seen there says nothing about it any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

Status = Literal["never", "changed", "verified"]

RECORD = "gpu_verified.json"

FRAMEWORKS = ("torch.py", "jax.py")
"""Files of ``integrations`` that give batches to a framework. The others know nothing of devices."""

_NOT_RUN_THERE = ("verified.py",)
_SOURCES = (".py", ".cu", ".cuh")


@dataclass(frozen=True, slots=True)
class GpuRun:
    """A run of all GPU tests and measurements that passed.

    Attributes:
        sha256: Of the device code that ran; see :func:`device_code_sha256`.
        gpu: Name of the GPU, as its driver gives it.
        machine: Driver, link and processor, by name.
        versions: Of Python, CuPy, the frameworks and so on, by name.
        date: Of the run, as YYYY-MM-DD in UTC.
        results: File with all measurements, relative to the root of the repository.
    """

    sha256: str
    gpu: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    date: str
    results: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What may be said about the device code.

    Attributes:
        status: ``never`` run on a GPU, ``changed`` since the last run, or ``verified`` as it is.
        run: The last run; None when there was none.
    """

    status: Status
    run: GpuRun | None

    def __str__(self) -> str:
        if self.run is None:
            return "device code never run on a GPU"
        where = f"{self.run.gpu} on {self.run.date}"
        if self.status == "changed":
            return f"device code changed since the last GPU run ({where})"
        return f"device code verified on {where}"


def verification() -> Verification:
    """Return what may be said about the device code of this installation. Touches no device."""
    run = read_run(_package().joinpath("device", RECORD).read_text(encoding="utf-8"))
    if run is None:
        return Verification("never", None)
    return Verification("verified" if run.sha256 == device_code_sha256() else "changed", run)


def read_run(text: str) -> GpuRun | None:
    """Return the run that a record's text tells of, or None when it says that there was none."""
    last: dict[str, Any] | None = json.loads(text)["last_run"]
    return None if last is None else GpuRun(**last)


def device_code_sha256() -> str:
    """Return the hash of all files that run on a GPU or talk to one, as hexadecimal digits.

    It is the same for a checkout and for what is installed from it, on any system.
    """
    return hash_of((name, file.read_bytes()) for name, file in device_files())


def device_files() -> Iterator[tuple[str, Traversable]]:
    """Yield name in the package, and file, of all that the hash is over, in the order of names."""
    for folder in ("device", "integrations"):
        for file in sorted(_package().joinpath(folder).iterdir(), key=lambda file: file.name):
            if file.name in _NOT_RUN_THERE or not file.name.endswith(_SOURCES):
                continue
            if folder == "device" or file.name in FRAMEWORKS:
                yield f"{folder}/{file.name}", file


def hash_of(named: Iterator[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of names and contents; line ends count as one character however a file has them."""
    digest = hashlib.sha256()
    for name, content in named:
        content = content.replace(b"\r\n", b"\n")
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _package() -> Traversable:
    return files("aiostream_data")
