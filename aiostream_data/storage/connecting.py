"""Find the cause of a failed connection, such as a wrong host name, port, certificate, proxy or redirect."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

from aiostream_data.errors import (
    AccessDeniedError,
    RedirectRefusedError,
    StorageError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.safe_url import shorten
from aiostream_data.storage.urls import safe_url

_REFUSED_BY_PROXY: Final = frozenset({401, 403, 407})
_VARIABLES: Final = "HTTP_PROXY, HTTPS_PROXY and NO_PROXY"


def describe_connection_failure(error: BaseException) -> str:
    """Describe the step of connecting that failed, based on ``error`` and its causes."""
    causes = list(_causes(error))
    for cause in filter(is_certificate, causes):
        told = str(getattr(cause, "verify_message", "")).rstrip(".")
        if told or cause is causes[-1]:
            return (
                f"the server's TLS certificate was rejected{f' ({shorten(told)})' if told else ''}; check the "
                "endpoint's host name, and that this machine trusts the issuer (SSL_CERT_FILE, or AWS_CA_BUNDLE for S3)"
            )
    for cause in causes:
        if isinstance(cause, socket.gaierror) or "DNS" in type(cause).__name__:
            return "the host name cannot be resolved; check the endpoint URL and the DNS"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; check the endpoint URL, and that the server is running"
        if "SSLError" in _names(cause):
            return "the TLS handshake failed; check the endpoint's scheme and port, and that the server supports TLS"
    return f"the connection failed ({type(error).__name__})"


def tls_failure(url: str, error: BaseException) -> StoreUnreachableError | None:
    """Return the error to raise for a failed TLS handshake, or None if ``error`` has another cause."""
    causes = list(_causes(error))
    if not any(is_certificate(cause) or "SSLError" in _names(cause) for cause in causes):
        return None
    failed = StoreUnreachableError(safe_url(url), describe_connection_failure(error))
    failed.is_final = any(is_certificate(cause) for cause in causes)
    return failed


def proxy_failure(url: str, error: BaseException) -> StorageError | None:
    """Return the error to raise if a proxy refuses requests or cannot be reached, or None if no proxy failed.

    The message contains only the proxy's host and port, because the proxy URL may contain a password.
    """
    for cause in _causes(error):
        names = _names(cause)
        if "ClientHttpProxyError" in names:
            where = getattr(getattr(cause, "request_info", None), "real_url", None)
            return proxy_refusal(url, int(getattr(cause, "status", 0)), _host_and_port(str(where)))
        if "ClientProxyConnectionError" in names:
            proxy = f"{getattr(cause, 'host', '')}:{getattr(cause, 'port', '')}"
            reason = describe_connection_failure(getattr(cause, "os_error", None) or cause).partition(";")[0]
            return StoreUnreachableError(
                safe_url(url), f"the proxy {proxy} cannot be reached: {reason}; check {_VARIABLES}"
            )
    return None


def redirect_failure(url: str, error: BaseException) -> StorageError | None:
    """Return the error to raise for a refused redirect or a redirect loop, or None if no redirect failed.

    The causes of ``error`` are searched because aiobotocore wraps errors in its own types.
    """
    for cause in _causes(error):
        if isinstance(cause, RedirectRefusedError):
            return cause
        if "TooManyRedirects" in _names(cause):
            told = "the server sent too many redirects, probably a loop; correct the redirects, or use another URL"
            return WrongAnswerError(safe_url(url), told)
    return None


def proxy_refusal(url: str, status: int, proxy: str = "") -> StorageError:
    """Return the error to raise for a response sent by a proxy instead of the store.

    Args:
        proxy: Host and port of the proxy. If empty, use the proxy from the environment variables.
    """
    proxy = proxy or _host_and_port(getproxies_environment().get("http", ""))
    if status in _REFUSED_BY_PROXY:
        return AccessDeniedError(
            safe_url(url),
            f"the proxy {proxy} refused the request (HTTP {status}); check its user and password in {_VARIABLES}",
        )
    return StoreUnreachableError(
        safe_url(url), f"the proxy {proxy} did not reach the store (HTTP {status}); check {_VARIABLES}"
    )


def is_certificate(error: BaseException) -> bool:
    """Return True if the error reports a rejected TLS certificate. The function compares class names, to avoid
    importing ``ssl``."""
    return any(name.startswith("SSLCert") or name.endswith("CertificateError") for name in _names(error))


def tells_urls(error: BaseException) -> bool:
    """Return True if the text of an error or of its causes may contain a URL signature or a proxy password."""
    return any(
        hasattr(each, "request_info") or type(each).__module__.startswith("requests.") for each in _causes(error)
    )


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _host_and_port(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url.rpartition("@")[2]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        # aiohttp and botocore keep the original error in an attribute and do not always chain it.
        kept = getattr(current, "os_error", None) or getattr(current, "certificate_error", None)
        current = kept if isinstance(kept, BaseException) else current.__cause__ or current.__context__
