"""Registry of store factories by URL scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aiostream_data.errors import PlanError
from aiostream_data.option_names import check_options
from aiostream_data.redaction import shown_option
from aiostream_data.storage.base import RunBlocking, Store, StoreOptions

StoreFactory: TypeAlias = Callable[[StoreOptions, RunBlocking], Store]
"""Function that creates a store from ``storage_options``. The function runs on the event loop and must not block."""


def _local(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.local import LocalStore

    direct = options.get("direct", False)
    if not isinstance(direct, bool):
        raise PlanError(f"direct must be True or False, got {shown_option(direct)}")
    return LocalStore(run_blocking, direct=direct)


def _memory(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.memory import MemoryStore

    return MemoryStore()


def _http(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.http import HttpStore

    check_options("http", options)
    return HttpStore(options)


def _s3(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.s3 import S3Store

    check_options("s3", options)
    return S3Store(options, run_blocking)


def _gcs(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.gcs import GcsStore

    check_options("gs", options)
    return GcsStore(options, run_blocking)


def _hub(options: StoreOptions, run_blocking: RunBlocking) -> Store:
    from aiostream_data.storage.hub import HubStore

    return HubStore(options, run_blocking)


_factories: dict[str, StoreFactory] = {
    "file": _local,
    "memory": _memory,
    "http": _http,
    "https": _http,
    "s3": _s3,
    "gs": _gcs,
    "hf": _hub,
}


def register_store(scheme: str, factory: StoreFactory | None) -> None:
    """Register a store factory for a URL scheme in this process. An earlier factory of this scheme is replaced.

    Args:
        scheme: URL scheme in lower case, without ``://``.
        factory: Function that creates the store, or None to remove the registration.

    Raises:
        PlanError: ``scheme`` is not a URL scheme in lower case.
    """
    if not scheme.isascii() or scheme != scheme.lower() or not scheme[:1].isalpha():
        raise PlanError(f"scheme must start with a letter and be in lower case, got {scheme!r}")
    if factory is None:
        _factories.pop(scheme, None)
    else:
        _factories[scheme] = factory


def open_store(scheme: str, options: StoreOptions, run_blocking: RunBlocking) -> Store:
    """Return a new store for ``scheme``. The caller closes it. Does no I/O.

    Schemes without a registered store use fsspec, which is imported at the first request. Therefore the first request
    raises an error for an unknown scheme (PlanError) or a missing package (MissingExtraError).
    """
    factory = _factories.get(scheme)
    if factory is not None:
        return factory(options, run_blocking)
    from aiostream_data.storage.fsspec_store import FsspecStore

    return FsspecStore(scheme, options, run_blocking)
