"""Test the native core built with AddressSanitizer and UndefinedBehaviorSanitizer, in a copy of the repository.

The copy leaves the usual build as it is. Needs gcc with its sanitizer libraries, on Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("aiostream_data", "tests", "benchmarks", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
TESTS = (
    "tests/unit/_native",
    "tests/unit/rows",
    "tests/fuzz",
    "tests/properties/test_example_properties.py",
    "tests/properties/test_framing_properties.py",
    "tests/properties/test_json_properties.py",
    "tests/properties/test_native_gather.py",
    "tests/properties/test_native_scalars.py",
    "tests/properties/test_native_spans.py",
    "tests/properties/test_skipping_properties.py",
    "tests/properties/test_small_objects.py",
    "tests/properties/test_spilled_shuffle.py",
    "tests/properties/test_stream_hash_kernel.py",
)


def main() -> int:
    """Build the copy, run its tests, and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="sanitized-") as name:
        folder = Path(name)
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
            else:
                shutil.copy(source, folder / part)
        _build(folder)
        return _test(folder)


def _build(folder: Path) -> None:
    tools = folder / "build-tools"
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--target", str(tools)]
    subprocess.run([*pip, "cython>=3.2", "setuptools"], check=True)
    environment = os.environ | {"PYTHONPATH": str(tools), "ASD_SANITIZE": "1"}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=folder, env=environment, check=True)
    built, sources = list(folder.glob("aiostream_data/_native/*.so")), list(folder.glob("aiostream_data/_native/*.pyx"))
    if len(built) < len(sources):
        sys.exit(f"only {len(built)} of {len(sources)} extensions were built")


def _test(folder: Path) -> int:
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",  # so that each object has bounds of its own
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
    return subprocess.run(pytest, cwd=folder, env=environment, check=False).returncode


def _library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"gcc has no {name}. Install the sanitizer libraries of gcc")
    return found


if __name__ == "__main__":
    sys.exit(main())
