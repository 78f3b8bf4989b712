"""Every use of CuPy in our sources is possible with the CuPy that is installed: names, numbers of arguments, keywords.

The uses are found by reading the sources (:mod:`cupy_calls`), so that new code is checked without a line here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import fake_cupy
import numpy_cupy
import pytest
from cupy_calls import Use, uses_in, uses_of
from cupy_signatures import NoSignatureError, look_up, misfit, signature_of

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    "aiostream_data/device/*.py",
    "aiostream_data/integrations/*.py",
    "benchmarks/gpu/**/*.py",
    "tests/gpu/*.py",
    "tests/fakes/late_consumers.py",
]
USES: Final = {str(path.relative_to(ROOT)): uses_in(path) for pattern in SOURCES for path in ROOT.glob(pattern)}

UNTOLD: dict[str, str] = {}
"""Reasons for which CuPy tells no signature of something that is called, by its name. Such calls go unchecked."""

OF_STAND_INS: Final = {
    "cupy.is_stand_in": "tells tests that it is one",
    "cupy.cuda.Stream.captured": "copies that wait for the end of a capture",
    "cupy.cuda.Stream.current": "behind get_current_stream",
}
"""What stand-ins have and CuPy has not, each with what for. Our sources must not use it."""


def fault(cupy: Any, use: Use) -> str | None:
    """Return why a use is not possible, or cannot be checked; None where it is possible."""
    try:
        if use.call is None:
            look_up(cupy, use.name)
            return None
        signature = signature_of(cupy, use.name)
    except AttributeError as error:
        return f"{use.where}: {use.name}: {error}"
    except NoSignatureError as error:
        return None if use.name in UNTOLD else f"{use.where}: {error}: its signature is not told"
    if signature is None:
        return None if use.name in UNTOLD else f"{use.where}: {use.name}: nothing is known of what it is"
    why = misfit(use.call, signature)
    return None if why is None else f"{use.where}: {use.name}: {why}"


@pytest.mark.parametrize("file", sorted(name for name, uses in USES.items() if uses))
def test_every_use_of_cupy_is_possible(cupy: Any, file: str) -> None:
    faults = [fault(cupy, use) for use in USES[file] if "is_stand_in" not in use.name]
    assert [one for one in faults if one is not None] == []


def test_the_calls_of_the_backend_are_among_those_that_are_checked() -> None:
    called = {use.name for name, uses in USES.items() if name.startswith("aiostream") for use in uses if use.call}
    assert {"cupy.cuda.runtime.memcpyAsync", "cupy.cuda.Stream", "cupy.RawKernel()", "cupy.RawModule"} <= called
    assert len(called) > 25


@pytest.mark.parametrize(
    "source",
    [
        "cupy.cuda.runtime.memcpyAsync(1, 2, 3, 4)",
        "cupy.cuda.runtime.memcpyAsync(1, 2, 3, 4, 5, 6)",
        "cupy.cuda.runtime.eventRecord(1, queue=2)",
        "cupy.cuda.runtime.noSuchCall()",
        "cupy.cuda.Stream(asynchronous=True)",
        "cupy.cuda.Stream().synchronize(1)",
        "cupy.cuda.UnownedMemory(1, 2)",
        "cupy.ndarray((1,), memory=2)",
        "cupy.asarray(1).copy_(2)",
        "cupy.RawModule(code='').get_function()",
        "cupy.RawModule(code='').get_function('f')(1, 2)",
        "cupy.get_default_memory_pool().free_all_blocks(1, 2)",
    ],
)
def test_a_call_that_cupy_does_not_take_is_found(cupy: Any, source: str) -> None:
    assert [one for one in (fault(cupy, use) for use in uses_of(source)) if one is not None] != []


def names_of(module: Any, path: str) -> Iterator[str]:
    """Yield the dotted names that a stand-in has."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        yield f"{path}.{name}"
        if isinstance(value, ModuleType | SimpleNamespace | type) and f"{path}.{name}" not in OF_STAND_INS:
            yield from names_of(value, f"{path}.{name}")


@pytest.mark.parametrize("install", [fake_cupy.install, numpy_cupy.install])
def test_a_stand_in_has_no_name_that_cupy_has_not(
    cupy: Any, install: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, fake_cupy.FakeCuda())
    names = list(names_of(sys.modules["cupy"], "cupy"))
    assert len(names) > 30
    missing = [name for name in names if not has(cupy, name)]
    assert [name for name in missing if name not in OF_STAND_INS] == []


def has(cupy: Any, name: str) -> bool:
    try:
        look_up(cupy, name)
    except AttributeError:
        return False
    return True
