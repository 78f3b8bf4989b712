"""Pickle messages for another process: large buffers apart, and what ``__main__`` defines by value."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, cast

APART_NBYTES = 4096
"""Buffers from this size on stay out of the pickle: copying them twice costs more than a place of their own."""


def has_cloudpickle() -> bool:
    """True when functions and classes can be sent by value."""
    return find_spec("cloudpickle") is not None


def dumps(value: object) -> bytes:
    """Pickle, by value what another process could not import, if cloudpickle is installed.

    Raises:
        Exception: It does not pickle; what pickle or the object raised.
    """
    return dumps_apart(value, 1 << 62)[0]


def dumps_apart(value: object, apart_nbytes: int = APART_NBYTES) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of ``value``, and its buffers of at least ``apart_nbytes`` as they lie in memory.

    Raises:
        Exception: It does not pickle; what pickle or the object raised.
    """
    try:
        pickled, buffers = _dumps(pickle.dumps, value, apart_nbytes)
    except Exception:
        if not has_cloudpickle():
            raise
        with suppress(Exception):  # of the two errors the plain one is what people know
            return _dumps(_by_value(), value, apart_nbytes)
        raise
    if b"__main__" in pickled and has_cloudpickle():  # another process has another __main__
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
