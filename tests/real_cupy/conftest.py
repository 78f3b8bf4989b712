"""Real CuPy on a machine without a GPU: skipped with the reason where it is not installed; see ``make test-cupy``."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import pytest
from gpu_at_hand import imported

MAJOR_VARIABLE = "AIOSTREAM_DATA_CUPY"


@pytest.fixture(scope="session")
def cupy() -> Any:
    """CuPy. It has to be there, and of the right version, where ``make test-cupy`` says so."""
    wanted = os.environ.get(MAJOR_VARIABLE)
    if wanted is None:
        return imported("cupy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy's own, when it is imported
        module = importlib.import_module("cupy")
    assert module.__version__.partition(".")[0] == wanted
    return module


@pytest.fixture(scope="session")
def jax() -> Any:
    """JAX. It has to be there where ``make test-cupy`` runs the tests."""
    return imported("jax") if os.environ.get(MAJOR_VARIABLE) is None else importlib.import_module("jax")


@pytest.fixture
def no_driver(cupy: Any) -> None:
    """Skip a test that is about machines without a driver where there is one."""
    if cupy.cuda.runtime.driverGetVersion():
        pytest.skip("there is an NVIDIA driver")
