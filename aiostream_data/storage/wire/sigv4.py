"""Sign requests to S3 with AWS Signature Version 4 in the Authorization header, in a few microseconds each.

A request signature is a chain of five HMACs. The first four HMACs depend only on the day and the key, so they are
cached. With the cached HMACs, each request needs one SHA-256 and one HMAC. The signature does not cover the body,
because a GET request has none. See "Authenticating Requests: Using the Authorization Header" in the AWS documentation;
the payload hash is UNSIGNED-PAYLOAD.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn
from urllib.parse import quote

from aiostream_data.errors import NotPicklableError

_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
_UNQUOTED: Final = re.compile(r"[A-Za-z0-9._~/-]*")


class AwsKey(NamedTuple):
    """AWS credentials. ``repr`` omits the secret key and the token."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"AwsKey(access_key={self.access_key!r})"

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError("cannot pickle AWS credentials; load them in each process")


class Signer:
    """Signer of requests to one service in one region.

    Args:
        region: Region in the scope of the signature, such as ``us-east-1``.
        service: Service name in the scope of the signature.
    """

    def __init__(self, region: str, service: str = "s3") -> None:
        self._region = region
        self._service = service
        self._day = ""
        self._key: AwsKey | None = None
        self._day_key = _DayKey(b"")
        self._second = -1
        self._stamp = ""

    def headers(
        self,
        key: AwsKey,
        host: str,
        path: str,
        query: str = "",
        extra: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        now: float | None = None,
    ) -> dict[str, str]:
        """Compute the HTTP headers that sign a request.

        Args:
            key: Credentials.
            host: Value of the Host header.
            path: URL path in the request line, percent-encoded once.
            query: Query in the request line: percent-encoded ``name=value`` pairs, sorted by the bytes of the names.
            extra: Further headers to sign, with lower-case names; the result includes these headers.
            method: HTTP method.
            now: Time in seconds since the Unix epoch; None for the current time.
        """
        shared = self.shared(key, host, extra, method=method, now=now)
        return {**shared.headers, "authorization": shared.authorization(path, query)}

    def shared(
        self,
        key: AwsKey,
        host: str,
        extra: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        now: float | None = None,
    ) -> SharedSignature:
        """Return what the signatures of requests have in common that differ only in path and query.

        The arguments are those of :meth:`headers`. The result is valid as long as a signature with its time.
        """
        stamp = self._time(time.time() if now is None else now)
        signed = {"host": host, "x-amz-content-sha256": _PAYLOAD, "x-amz-date": stamp, **(extra or {})}
        if key.token is not None:
            signed["x-amz-security-token"] = key.token
        names, list_of_names = _in_order(tuple(signed))
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        del signed["host"]
        return SharedSignature(
            signed,
            method,
            f"{lines}\n{list_of_names}\n{_PAYLOAD}",
            f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n",
            f"AWS4-HMAC-SHA256 Credential={key.access_key}/{scope},SignedHeaders={list_of_names},Signature=",
            self._key_of_day(key, stamp[:8]),
        )

    def _time(self, now: float) -> str:
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        return self._stamp

    def _key_of_day(self, key: AwsKey, day: str) -> _DayKey:
        if day != self._day or key != self._key:
            derived = f"AWS4{key.secret_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                derived = hmac.digest(derived, part.encode(), "sha256")
            self._day, self._key, self._day_key = day, key, _DayKey(derived)
        return self._day_key


class SharedSignature:
    """Common part of the signatures of requests that differ only in path and query.

    Attributes:
        headers: Signed headers of each request, except Host and Authorization.
    """

    __slots__ = ("_authorization", "_day_key", "_lines", "_method", "_text", "headers")

    def __init__(
        self, headers: dict[str, str], method: str, lines: str, text: str, authorization: str, day_key: _DayKey
    ) -> None:
        self.headers = headers
        self._method = method
        self._lines = lines
        self._text = text
        self._authorization = authorization
        self._day_key = day_key

    def authorization(self, path: str, query: str = "") -> str:
        """Return the Authorization header of a request."""
        request = f"{self._method}\n{path}\n{query}\n{self._lines}"
        text = f"{self._text}{hashlib.sha256(request.encode()).hexdigest()}"
        return self._authorization + self._day_key.sign(text.encode())


class _DayKey:
    """HMAC-SHA256 with a fixed key of at most 64 bytes, whose two padded blocks are hashed only once (RFC 2104).

    The function ``hmac.digest`` releases the interpreter lock for every signature. Waiting for the lock takes much
    longer than the signature if other threads run.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = key.ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def sign(self, text: bytes) -> str:
        """Return the HMAC of ``text`` in hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.hexdigest()


@lru_cache(maxsize=64)
def _in_order(names: Iterable[str]) -> tuple[list[str], str]:
    """Sort header names as AWS signatures require.

    Return the sorted names and the semicolon-separated list of signed names.
    """
    ordered = sorted(names)
    return ordered, ";".join(ordered)


def quoted_path(path: str) -> str:
    """Percent-encode all UTF-8 bytes of a path for an S3 signature, except letters, digits and ``-._~/``."""
    return path if _UNQUOTED.fullmatch(path) is not None else quote(path, safe="/~")
