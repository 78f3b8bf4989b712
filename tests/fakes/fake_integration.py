"""Makes our integration with a library use a stand-in of it."""

from __future__ import annotations

import sys
from typing import Any

import pytest


def use_library(monkeypatch: pytest.MonkeyPatch, name: str, module: Any) -> None:
    """Make our integration with a library use ``module``, for the rest of a test; None: as if it were not installed."""
    monkeypatch.setitem(sys.modules, name, module)
    if module is not None and hasattr(module, "numpy"):
        monkeypatch.setitem(sys.modules, f"{name}.numpy", module.numpy)
    integration = f"aiostream_data.integrations.{name}"
    monkeypatch.delitem(sys.modules, integration, raising=False)
    monkeypatch.setitem(sys.modules, integration, None)  # put back, as it was, at the end
    del sys.modules[integration]
