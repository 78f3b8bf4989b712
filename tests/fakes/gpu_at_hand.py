"""Whether a test can have a GPU here."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

from aiostream_data.device.select import open_backend
from aiostream_data.errors import DeviceUnavailableError, MissingExtraError


def imported(name: str) -> Any:
    """Return a large library of somebody else, or skip the test; what it warns of when it is imported is its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not installed")


def real_cupy() -> Any:
    """Return CuPy where it has a GPU, or skip the test and say why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy's own, when it is imported
            open_backend("cuda:0").close()
    except (MissingExtraError, DeviceUnavailableError) as error:
        pytest.skip(str(error))
    return importlib.import_module("cupy")


def cupy_of_two_gpus() -> Any:
    """Return CuPy where it has two GPUs, or skip the test and say why."""
    cupy = real_cupy()
    count = int(cupy.cuda.runtime.getDeviceCount())
    if count < 2:
        pytest.skip(f"needs two GPUs, this machine has {count}")
    return cupy
