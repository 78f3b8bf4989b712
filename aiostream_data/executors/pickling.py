"""Pickle messages for another process.

Large buffers stay outside the pickle; objects defined in ``__main__`` are pickled by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, cast

APART_NBYTES = 4096
"""Minimum size in bytes of buffers that stay outside the pickle.

Smaller buffers are pickled, because sending a buffer separately costs more.
"""


def has_cloudpickle() -> bool:
    """Return True if functions and classes can be pickled by value, i.e. if cloudpickle is installed."""
    return find_spec("cloudpickle") is not None


def dumps(value: object) -> bytes:
    """Pickle ``value``.

    Objects that another process cannot import are pickled by value if cloudpickle is installed.

    Raises:
        Exception: ``value`` cannot be pickled. pickle or the object raised this exception.
    """
    return dumps_apart(value, 1 << 62)[0]


def dumps_apart(value: object, apart_nbytes: int = APART_NBYTES) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of ``value`` and its buffers of at least ``apart_nbytes`` bytes, which are not copied.

    Raises:
        Exception: ``value`` cannot be pickled. pickle or the object raised this exception.
    """
    try:
        pickled, buffers = _dumps(pickle.dumps, value, apart_nbytes)
    except Exception:
        if not has_cloudpickle():
            raise
        with suppress(Exception):  # if both fail, the error of plain pickle is better known
            return _dumps(_by_value(), value, apart_nbytes)
        raise
    if b"__main__" in pickled and has_cloudpickle():  # other processes have a different __main__
        return _dumps(_by_value(), value, apart_nbytes)
    return pickled, buffers


def _dumps(how: Callable[..., bytes], value: object, apart_nbytes: int) -> tuple[bytes, list[memoryview]]:
    buffers: list[memoryview] = []

    def goes_along(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < apart_nbytes:
            return True
        buffers.append(raw)
        return False

    return how(value, protocol=5, buffer_callback=goes_along), buffers


def _by_value() -> Callable[..., bytes]:
    import cloudpickle

    return cast(Callable[..., Any], cloudpickle.dumps)
