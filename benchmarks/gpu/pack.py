"""Take the native core to a machine that has another Python, and neither Cython nor a network.

Here ``python -m benchmarks.gpu.pack make build/gpu`` collects in a folder the C that Cython made of it; where the
other Python is here too, ``python3.12 -m benchmarks.gpu.pack compile build/gpu`` compiles that for it. There, in a copy
of the repository with that folder, ``python -m benchmarks.gpu.pack build build/gpu`` puts what fits the Python that
runs it into the package, and compiles what is missing. Without a C compiler or Python's headers there, the pure-Python
twins run, and the last line says so.
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
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
"""How the names of modules for this Python on this kind of machine end."""


def make(folder: Path) -> list[str]:
    """Collect the C files and headers in ``folder``; run Cython first where a source is newer. Return their names."""
    sources = list(NATIVE.glob("*.pyx"))
    if not all(_made(source) for source in sources):
        subprocess.run([sys.executable, "-c", "from setup import extensions; extensions()"], cwd=ROOT, check=True)
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
    """Put a module for this Python into ``target`` for every C file of ``folder``, compiled there before or now.

    Returns:
        For each file that could not be compiled, why.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)

    def put(source: Path) -> str:
        module = f"{source.stem}{SUFFIX}"
        if (folder / module).exists():
            shutil.copy(folder / module, target)
            return ""
        return "no C compiler" if compiler is None else _compile(compiler, source, target / module)

    with ThreadPoolExecutor() as threads:
        sources = sorted(folder.glob("*.c"))
        return {source.name: error for source, error in zip(sources, threads.map(put, sources), strict=True) if error}


def compile_here(folder: Path) -> dict[str, str]:
    """Compile every C file of ``folder`` for this Python, and leave the modules in it; returns as :func:`build`."""
    for stale in folder.glob(f"*{SUFFIX}"):
        stale.unlink()
    with tempfile.TemporaryDirectory() as made:
        errors = build(folder, Path(made))
        for module in Path(made).iterdir():
            shutil.copy(module, folder)
    return errors


def _compile(compiler: str, source: Path, module: Path) -> str:
    headers = [f"-I{sysconfig.get_paths()['include']}", f"-I{source.parent}"]
    command = [compiler, "-O3", "-shared", "-fPIC", *headers, str(source), "-o", str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "compile", "build"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "make":
        print(f"{len(make(arguments.folder))} files in {arguments.folder}")
        return
    errors = compile_here(arguments.folder) if arguments.what == "compile" else build(arguments.folder)
    for name, error in errors.items():
        print(f"{name}: {error}")
    if arguments.what == "compile":
        print(f"{len(list(arguments.folder.glob(f'*{SUFFIX}')))} modules {SUFFIX} in {arguments.folder}")
        return
    doctor = [sys.executable, "-m", "aiostream_data", "doctor", "--native"]
    subprocess.run(doctor, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
