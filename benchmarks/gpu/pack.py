"""Take the native core to a machine that has another Python, and neither Cython nor a network.

Here ``python -m benchmarks.gpu.pack make build/gpu`` collects in a folder the C that Cython made of it. There, in a
copy of the repository with that folder, ``python -m benchmarks.gpu.pack build build/gpu`` compiles it for the Python
that runs it, into the package. Without a C compiler or Python's headers there, the pure-Python twins run, and the last
line says so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "aiostream_data" / "_native"
COMPILERS = ("cc", "gcc", "clang")


def make(folder: Path) -> list[str]:
    """Collect the C files and headers in ``folder``; run Cython first where a source is newer. Return their names."""
    sources = list(NATIVE.glob("*.pyx"))
    if not all(_made(source) for source in sources):
        with tempfile.TemporaryDirectory() as elsewhere:
            command = [
                sys.executable,
                "setup.py",
                "-q",
                "build_ext",
                "--build-temp",
                elsewhere,
                "--build-lib",
                elsewhere,
            ]
            subprocess.run(command, cwd=ROOT, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    collected = [*(source.with_suffix(".c") for source in sources), NATIVE / "cython_shared.c", *NATIVE.glob("*.h")]
    for path in collected:
        shutil.copy(path, folder)
    return sorted(path.name for path in collected)


def _made(source: Path) -> bool:
    made = source.with_suffix(".c")
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


def build(folder: Path, target: Path = NATIVE) -> dict[str, str]:
    """Compile every C file of ``folder`` for this Python into ``target``.

    Returns:
        For each file that could not be compiled, why.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    sources = sorted(folder.glob("*.c"))
    if compiler is None:
        return {source.name: "no C compiler" for source in sources}
    with ThreadPoolExecutor() as threads:
        said = threads.map(lambda source: _compile(compiler, source, target), sources)
        return {source.name: error for source, error in zip(sources, said, strict=True) if error}


def _compile(compiler: str, source: Path, target: Path) -> str:
    module = target / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    headers = [f"-I{sysconfig.get_paths()['include']}", f"-I{source.parent}"]
    command = [compiler, "-O3", "-shared", "-fPIC", *headers, str(source), "-o", str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "build"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "make":
        print(f"{len(make(arguments.folder))} files in {arguments.folder}")
        return
    for name, error in build(arguments.folder).items():
        print(f"{name}: {error}")
    doctor = [sys.executable, "-m", "aiostream_data", "doctor", "--native"]
    subprocess.run(doctor, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
