"""Every test of this folder twice: on a GPU, skipped with the reason where there is none, and on a CuPy of NumPy.

The second shows that the test itself is sound before a GPU is at hand; it shows nothing about a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy_cupy
import pytest
from gpu_at_hand import real_cupy

STAND_IN = "stand-in"


@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.gpu), STAND_IN])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy on a GPU, or the stand-in."""
    return numpy_cupy.install(monkeypatch) if request.param == STAND_IN else real_cupy()


@pytest.fixture
def on_gpu(cupy: Any) -> bool:
    """True on a GPU."""
    return not hasattr(cupy, "is_stand_in")


@pytest.fixture
def scaled(on_gpu: bool) -> Any:
    """A function that chooses between a size for a GPU and one for the stand-in."""
    return lambda full, small: full if on_gpu else small
