"""Turn what clients raise and what servers answer into the errors of this package.

Every message is one sentence with the URL (secrets removed), the cause, and what to do about it.
Texts of third parties are quoted only after being shortened, because they may hold anything.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from aiostream_data.errors import (
    AccessDeniedError,
    AiostreamError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.safe_url import shorten as shorten  # those of stores find it here
from aiostream_data.storage.connecting import describe_connection_failure as describe_connection_failure
from aiostream_data.storage.connecting import proxy_failure, proxy_refusal, redirect_failure, tells_urls, tls_failure
from aiostream_data.storage.urls import folder_hint, safe_url

Translate: TypeAlias = Callable[[str, Exception], StorageError]

_BUSY_STATUSES = frozenset({408, 409, 425, 429})


class translating:
    """Let only errors of this package leave the block; others are passed through ``translate``.

    No generator, since it is made for every request.
    """

    __slots__ = ("_translate", "_url")

    def __init__(self, url: str, translate: Translate) -> None:
        self._url = url
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, AiostreamError):
            return
        translated = self._translate(self._url, error)
        raise translated from (None if tells_urls(error) else error)


def translate_error(url: str, error: Exception) -> StorageError:
    """Translate built-in and aiohttp exceptions; anything else becomes a plain StorageError."""
    where = safe_url(url)
    status = getattr(error, "status", None)
    if (by_proxy := proxy_failure(url, error)) is not None:
        return by_proxy
    if (by_tls := tls_failure(url, error)) is not None:  # of Python's own, some are a ValueError
        return by_tls
    if (by_redirect := redirect_failure(url, error)) is not None:
        return by_redirect
    if _is_no_http(error):
        return StoreUnreachableError(where, "the server's answer is not HTTP as it should be")
    if isinstance(status, int) and status >= 400:  # aiohttp's ClientResponseError
        return translate_status(url, status)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ObjectNotFoundError(where, "no such object")
    if isinstance(error, IsADirectoryError):
        return ObjectNotFoundError(where, "is a directory, not an object; add /* to read what it holds")
    if isinstance(error, PermissionError):
        return AccessDeniedError(where, f"permission denied ({_cause(error)})")
    if isinstance(error, TimeoutError):
        return StoreTimeoutError(where, "no answer within the time-outs; is the network slow, or the endpoint wrong?")
    if isinstance(error, ValueError):
        return StorageError(where, f"the URL or an option does not make sense to the store ({_cause(error)})")
    if isinstance(error, (ConnectionError, EOFError, socket.gaierror)) or _is_aiohttp_failure(error):
        return StoreUnreachableError(where, describe_connection_failure(error))
    return StorageError(where, f"the store failed ({_cause(error)})")


def translate_status(url: str, status: int, *, detail: str = "", request_id: str = "") -> StorageError:
    """Translate an HTTP status that is not the one hoped for.

    Args:
        detail: The server's own words, such as the error code in its body.
        request_id: For the operator of the store; "" when unknown.
    """
    where = safe_url(url)
    if status == 407:  # no store says that
        return proxy_refusal(url, status)
    told = f"HTTP {status}"
    if detail:
        told += f", {shorten(detail)}"
    if request_id:
        told += f", request id {shorten(request_id)}"
    if status in (404, 410):
        return ObjectNotFoundError(where, f"no such object ({told}){folder_hint(url)}")
    if status == 401:
        return CredentialsError(where, f"credentials are missing, wrong or expired ({told})")
    if status == 403:
        return AccessDeniedError(where, f"the store refused access ({told}); check credentials and permissions")
    if status == 412:
        return ObjectChangedError(where, f"the object was replaced while it was being read ({told})")
    if status == 416:
        return ShortReadError(where, f"the object ends before the bytes asked for ({told})")
    if status in _BUSY_STATUSES or status >= 500:
        busy = StoreBusyError(where, f"the store cannot serve the request now ({told})")
        busy.is_throttled = status in (429, 503)
        return busy
    return StorageError(where, f"unexpected answer ({told})")


def bucket_alone(url: str) -> ObjectNotFoundError:
    """Return the error for a URL that names a bucket where an object should be."""
    return ObjectNotFoundError(safe_url(url), "names a bucket, and no object in it; add /* to read what it holds")


def _cause(error: BaseException) -> str:
    """Name the error, with the system's words where it is the system that spoke."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {shorten(str(error.strerror))}"
    return type(error).__name__


def _is_no_http(error: Exception) -> bool:
    """True for what aiohttp raises when it cannot parse an answer, with a status of 400 that nobody sent."""
    kinds = type(error.__cause__).__mro__
    return any(kind.__module__.startswith("aiohttp.") and kind.__name__ == "HttpProcessingError" for kind in kinds)


def _is_aiohttp_failure(error: Exception) -> bool:
    # By name, because aiohttp is optional and this module must not load it.
    return any(
        kind.__module__.startswith("aiohttp.") and kind.__name__ == "ClientError" for kind in type(error).__mro__
    )
