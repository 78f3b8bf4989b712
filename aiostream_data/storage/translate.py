"""Translate exceptions of HTTP clients and error responses of servers into the errors of this package.

Every message is one sentence with the URL (without secrets), the cause, and a remedy. Error texts of servers and
libraries are shortened before they are quoted, because their content is unknown.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeAlias

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
from aiostream_data.safe_url import shorten as shorten  # re-exported for stores
from aiostream_data.storage.connecting import describe_connection_failure as describe_connection_failure
from aiostream_data.storage.connecting import proxy_failure, proxy_refusal, redirect_failure, tells_urls, tls_failure
from aiostream_data.storage.urls import folder_hint, safe_url

Translate: TypeAlias = Callable[[str, Exception], StorageError]

NO_ANSWER: Final = (
    "the store did not answer in time; check the endpoint and the network, or raise connect_timeout and read_timeout"
)

_BUSY_STATUSES = frozenset({408, 409, 425, 429})


class translating:
    """Context manager that translates exceptions raised in its block with the function ``translate``.

    Package errors pass unchanged.

    ``translating`` is a class, because every request creates an instance and a generator function is slower.
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
    """Translate a built-in or aiohttp exception. Any other exception becomes a plain StorageError."""
    where = safe_url(url)
    status = getattr(error, "status", None)
    if (by_proxy := proxy_failure(url, error)) is not None:
        return by_proxy
    if (by_tls := tls_failure(url, error)) is not None:  # some TLS errors of Python are ValueErrors
        return by_tls
    if (by_redirect := redirect_failure(url, error)) is not None:
        return by_redirect
    if _is_no_http(error):
        return StoreUnreachableError(
            where, "the server sent a malformed HTTP answer; check the endpoint's scheme and port, and any proxy"
        )
    if isinstance(status, int) and status >= 400:  # aiohttp's ClientResponseError
        return translate_status(url, status)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ObjectNotFoundError(where, "no such object")
    if isinstance(error, IsADirectoryError):
        return ObjectNotFoundError(where, "is a directory, not an object; add /* to read its files")
    if isinstance(error, PermissionError):
        return AccessDeniedError(where, f"permission denied ({_cause(error)})")
    if isinstance(error, TimeoutError):
        return StoreTimeoutError(where, NO_ANSWER)
    if isinstance(error, ValueError):
        return StorageError(
            where, f"the URL or an option is invalid ({_cause(error)}); check the URL and storage_options"
        )
    if isinstance(error, (ConnectionError, EOFError, socket.gaierror)) or _is_aiohttp_failure(error):
        return StoreUnreachableError(where, describe_connection_failure(error))
    return StorageError(where, f"the store failed ({_cause(error)})")


def translate_status(url: str, status: int, *, detail: str = "", request_id: str = "") -> StorageError:
    """Convert the HTTP status of an error response to an error of this package.

    Args:
        detail: Error text of the server, such as the error code in the body.
        request_id: Request id to report to the operator of the store, or "" if unknown.
    """
    where = safe_url(url)
    if status == 407:  # only proxies answer with this status
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
        return ShortReadError(where, f"the object ends before the requested bytes ({told})")
    if status in _BUSY_STATUSES or status >= 500:
        busy = StoreBusyError(where, f"the store cannot serve the request now ({told})")
        busy.is_throttled = status in (429, 503)
        return busy
    return StorageError(where, f"unexpected answer ({told})")


def bucket_alone(url: str) -> ObjectNotFoundError:
    """Return the error to raise for a URL that names a bucket instead of an object."""
    return ObjectNotFoundError(safe_url(url), "is a bucket, not an object; add /* to read its objects")


def _cause(error: BaseException) -> str:
    """Return the type name of an error. For an OSError, add the message of the operating system."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {shorten(str(error.strerror))}"
    return type(error).__name__


def _is_no_http(error: Exception) -> bool:
    """Return True for aiohttp's error about an unparsable response. aiohttp itself sets the error's status to 400."""
    kinds = type(error.__cause__).__mro__
    return any(kind.__module__.startswith("aiohttp.") and kind.__name__ == "HttpProcessingError" for kind in kinds)


def _is_aiohttp_failure(error: Exception) -> bool:
    # Compare class names, because aiohttp is optional and this module must not import it.
    return any(
        kind.__module__.startswith("aiohttp.") and kind.__name__ == "ClientError" for kind in type(error).__mro__
    )
