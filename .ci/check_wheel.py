"""Build the wheel, and check that it is small and holds what users and type checkers need, the native core included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MAX_NBYTES = 2_800_000
"""A quarter of it is the native core, a third docstrings, and a twentieth what users test their pipelines with."""
NEEDED = (
    "aiostream_data/py.typed",
    "aiostream_data/_native/framing.pyi",
    "aiostream_data/dataset/dataset.py",
    "aiostream_data/device/gpu_verified.json",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # By way of a source distribution, which so is shown to be complete, and without what lies in build/.
        subprocess.run([sys.executable, "-m", "build", "--outdir", folder], check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        nbytes = wheel.stat().st_size
        names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in NEEDED if name not in names]
    if not any(name.startswith("aiostream_data/_native/framing.") and name.endswith((".so", ".pyd")) for name in names):
        missing.append("the native core")
    if missing or nbytes >= MAX_NBYTES:
        sys.exit(f"{wheel.name}: {nbytes:,} bytes (limit {MAX_NBYTES:,}), missing {missing}")
    print(f"{wheel.name}: {nbytes:,} bytes, {len(names)} files")


if __name__ == "__main__":
    main()
