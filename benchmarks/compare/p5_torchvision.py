"""mosaicml-streaming, also where torchvision does not load: it wants that for data sets that nobody uses here."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_WANTED = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")


class _Nothing(ModuleType):
    """A module that has a class of any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def load_streaming() -> Any:
    """Return the package ``streaming``.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError):  # not there, or built for another PyTorch
        for name in _WANTED:
            module = _Nothing(name)
            module.__spec__ = ModuleSpec(name, None)
            module.__path__ = []
            sys.modules[name] = module
    import_module("streaming.base.util")
    return import_module("streaming")
