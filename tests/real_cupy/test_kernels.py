"""Every kernel is compiled by NVRTC for every GPU that it knows, as CuPy would, and without a warning."""

from __future__ import annotations

import ast
import ctypes
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aiostream_data.device.image_cast_kernel import KERNELS, SOURCE

ROOT = Path(__file__).resolve().parents[2]
OLDEST: Final = 70
"""Volta. What is older, no NVRTC of CUDA 13 knows."""

ITS_OWN: Final = "nvrtc: warning: Architectures prior to"
"""What NVRTC says of old GPUs, whatever the source."""


def cuda_sources(tree: ast.AST) -> Iterator[str]:
    """Yield strings that are kernels, those in programs that are strings themselves included."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if not isinstance(text, str) or "__global__ void" not in text:
            continue
        if "import cupy" in text:
            yield from cuda_sources(ast.parse(text))
        else:
            yield text


def kernels() -> Iterator[Any]:
    """Yield all sources, with the names of what is in them."""
    yield pytest.param(SOURCE, KERNELS, id="image_cast")
    folders = ["tests/gpu/*.py", "tests/fakes/late_consumers.py", "benchmarks/gpu/**/*.py"]
    for path in (path for folder in folders for path in sorted(ROOT.glob(folder))):
        for source in cuda_sources(ast.parse(path.read_text())):
            yield pytest.param(source, re.findall(r"__global__ void (\w+)\(", source), id=path.stem)


class Loaded:
    """In place of CuPy's module, which would be loaded onto a GPU: keeps the code."""

    made: bytes = b""

    def load(self, code: bytes) -> None:
        Loaded.made = code

    def _set_mapping(self, mapping: Any) -> None:
        """Forget names that templates were given, of which there are none."""


@pytest.fixture
def compiler(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``cupy.cuda.compiler``, which asks no GPU and keeps no file."""
    compiler = cupy.cuda.compiler
    find_nvrtc(cupy.cuda.nvrtc)
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    monkeypatch.setattr(compiler.function, "Module", Loaded)
    remembers = compiler._get_arch_for_options_for_nvrtc  # for each GPU, and so asks for the current one
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", remembers.__wrapped__)
    return compiler


def find_nvrtc(nvrtc: Any) -> None:
    """Load NVRTC from its wheel where CuPy does not look there, as version 13 does not."""
    try:
        nvrtc.getVersion()
    except RuntimeError:
        found = [path for folder in sys.path for path in Path(folder).glob("nvidia/*/lib/libnvrtc.so.*")]
        ctypes.CDLL(str(found[0]), ctypes.RTLD_GLOBAL)


def architectures(nvrtc: Any) -> list[int]:
    """Return the compute capabilities that NVRTC compiles for, as in 90 for 9.0."""
    if hasattr(nvrtc, "getSupportedArchs"):
        return [int(one) for one in nvrtc.getSupportedArchs()]
    library = ctypes.CDLL(f"libnvrtc.so.{nvrtc.getVersion()[0]}")
    count = ctypes.c_int()
    assert library.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    known = (ctypes.c_int * count.value)()
    assert library.nvrtcGetSupportedArchs(known) == 0
    return list(known)


def compiled(compiler: Any, source: str, architecture: int) -> tuple[bytes, str]:
    """Return what CuPy would load onto a GPU, and what NVRTC said."""
    log = io.StringIO()
    compiler._compile_module_with_cache(source, (), arch=str(architecture), log_stream=log)
    said = [line for line in log.getvalue().splitlines() if line.strip() and not line.startswith(ITS_OWN)]
    return Loaded.made, "\n".join(said)


@pytest.mark.parametrize(("source", "names"), list(kernels()))
def test_a_kernel_is_compiled_for_every_gpu_without_a_warning(
    cupy: Any, compiler: Any, source: str, names: list[str]
) -> None:
    known = [one for one in architectures(cupy.cuda.nvrtc) if one >= OLDEST]
    assert {75, 80, 86, 89, 90, 100, 120} <= set(known)
    assert names
    for architecture in known:
        code, said = compiled(compiler, source, architecture)
        assert said == "", f"sm_{architecture}"
        assert [name for name in names if name.encode() not in code] == [], f"sm_{architecture}"


def test_kernels_of_tests_are_among_those_that_are_compiled() -> None:
    assert {"image_cast", "late_consumers", "test_cuda_limits"} <= {one.id for one in kernels()}


def test_a_source_with_a_mistake_raises_the_error_that_the_backend_catches(cupy: Any, compiler: Any) -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException, match='identifier "nothing" is undefined'):
        compiled(compiler, 'extern "C" __global__ void f(int* a) { a[0] = nothing; }', 90)


def test_a_warning_of_the_compiler_is_seen(compiler: Any) -> None:
    code, said = compiled(compiler, 'extern "C" __global__ void f(int* a) { int unused = 1; a[0] = 2; }', 90)
    assert b"f" in code
    assert "declared but never referenced" in said
