"""Tests of Arrow exchange that run with each kind of kernels."""

from __future__ import annotations

import pytest
from arrow_producers import use_twins


@pytest.fixture(params=["native", "python"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test twice: with the native kernels, and with their twins."""
    name: str = request.param
    if name == "python":
        use_twins(monkeypatch)
    return name
