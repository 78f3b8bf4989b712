"""How uses of CuPy are found in sources, and held against signatures as CuPy writes them. Needs no CuPy."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest
from cupy_calls import uses_of
from cupy_signatures import NoSignatureError, in_text, misfit, signature_of


def called_in(source: str) -> list[str]:
    return [use.name for use in uses_of(source) if use.call is not None]


def call(source: str) -> ast.Call:
    node = ast.parse(source, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("cupy.cuda.runtime.free(0)", "cupy.cuda.runtime.free"),
        ("hardware.cupy.asarray(1)", "cupy.asarray"),
        ("self._runtime.free(0)", "cupy.cuda.runtime.free"),
        ("runtime = hardware.cupy.cuda.runtime\nruntime.free(0)", "cupy.cuda.runtime.free"),
        ("a, b = 1, cupy.cuda\nb.alloc(0)", "cupy.cuda.alloc"),
        ("import_cupy(device).cuda.runtime.free(0)", "cupy.cuda.runtime.free"),
        ("self._kernels[name](1, 2)", "cupy.RawKernel()"),
        ("mark.event.synchronize()", "cupy.cuda.Event().synchronize"),
        ("PROGRAM = '''\nimport cupy\ncupy.zeros(8)\n'''", "cupy.zeros"),
        ("def f(runtime):\n    return lambda: runtime.free(0)", "cupy.cuda.runtime.free"),
        ("async def f(cupy):\n    cupy.zeros(8)", "cupy.zeros"),
    ],
)
def test_a_call_is_found_by_what_it_is_made_on(source: str, name: str) -> None:
    assert name in called_in(source)


def test_what_a_call_gives_is_followed_through_with_blocks_and_attributes() -> None:
    source = """
class Copies:
    def __init__(self, hardware):
        self._cuda = hardware.cupy.cuda
        self.stream = self._cuda.Stream(non_blocking=True)

    def wait(self):
        self.stream.synchronize()
        with self._cuda.Stream() as own:
            own.begin_capture()
"""
    assert called_in(source) == [
        "cupy.cuda.Stream",
        "cupy.cuda.Stream().synchronize",
        "cupy.cuda.Stream",
        "cupy.cuda.Stream().begin_capture",
    ]


def test_what_failures_carry_is_found() -> None:
    names = [use.name for use in uses_of("try:\n    go()\nexcept runtime.CUDARuntimeError as error:\n    error.status")]
    assert "cupy.cuda.runtime.CUDARuntimeError().status" in names


@pytest.mark.parametrize(
    "source",
    [
        "torch.cuda.Stream()",
        "batch.cupy()",
        "from aiostream_data.device import cuda\ncuda.import_cupy('cuda')",
        "cuda = Recording()\ncuda.Stream()",
        "for runtime in runtimes:\n    runtime.start()",
        "x = cupy.cuda\nx = torch.cuda\nx.Stream()",
        "class A:\n  def f(self):\n    self.x = cupy.zeros(8)\nclass B:\n  def f(self):\n    self.x.copy_(1)",
    ],
)
def test_what_is_not_of_cupy_is_not_found(source: str) -> None:
    assert [name for name in called_in(source) if name != "cupy.zeros"] == []


EVENT_RECORD = in_text("eventRecord(intptr_t event, intptr_t stream)", "eventRecord")


@pytest.mark.parametrize("source", ["f(1, 2)", "f(1, stream=2)", "f(*both)", "f(event=1, **rest)"])
def test_a_call_that_fits_is_no_misfit(source: str) -> None:
    assert EVENT_RECORD is not None
    assert misfit(call(source), EVENT_RECORD) is None


@pytest.mark.parametrize("source", ["f()", "f(1)", "f(1, 2, 3)", "f(1, queue=2)", "f(1, 2, 3, *more)"])
def test_a_call_that_does_not_fit_is_told_with_the_signature(source: str) -> None:
    assert EVENT_RECORD is not None
    assert "in (event, stream)" in str(misfit(call(source), EVENT_RECORD))


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("ctxGetCurrent() -> intptr_t", "ctxGetCurrent", "()"),
        ("streamWaitEvent(intptr_t stream, intptr_t event, unsigned int flags=0)", "streamWaitEvent",
         "(stream, event, flags=None)"),
        ("RawModule.get_function(self, str name)", "get_function", "(name)"),
        ("__init__(self, shape, dtype=float, memptr=None, order='C')", "ndarray",
         "(shape, dtype=None, memptr=None, order=None)"),
        ("RawModule(str code=None, *, str path=None, tuple options=(), str backend=u'nvrtc')", "RawModule",
         "(code=None, *, path=None, options=None, backend=None)"),
        (r"__call__(self, grid, args, \*, shared_mem=0)", "RawKernel", "(grid, args, *, shared_mem=None)"),
    ],
)  # fmt: skip
def test_signatures_are_read_as_cython_writes_them(text: str, name: str, expected: str) -> None:
    assert str(in_text(text, name)) == expected


@pytest.mark.parametrize("text", ["", "Waits for it.", "Other(int x)", "See f(x)."])
def test_a_text_without_a_signature_has_none(text: str) -> None:
    assert in_text(text, "f") is None


def test_what_takes_anything_counts_as_no_signature() -> None:
    with pytest.raises(NoSignatureError, match="takes anything"):
        signature_of(SimpleNamespace(f=lambda *arguments: None), "cupy.f")


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gone'"):
        signature_of(SimpleNamespace(f=1), "cupy.gone")
