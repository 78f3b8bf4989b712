"""Take URLs and paths apart, and make them safe to print."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, TypeAlias

from aiostream_data.errors import PlanError

Url: TypeAlias = "str | os.PathLike[str]"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CHAIN = re.compile(r"[A-Za-z0-9+.-]+::.*://", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "local": "file"}
_MAGIC = re.compile(r"[*?\[]")
_REDACTED = "***"
_SECRET_WORD = re.compile(r"sig|token|secret|key|password|credential|auth", re.IGNORECASE)


class Location(NamedTuple):
    """Where an object is.

    Attributes:
        scheme: Lower case, aliases resolved: ``file``, ``memory``, ``s3``, ``gs``, ``http`` ...
        path: What follows ``://``, byte for byte (keys are never unquoted); a plain path for ``file``.
    """

    scheme: str
    path: str


def split_url(url: Url) -> Location:
    """Split a URL or path; whatever has no ``scheme://`` is a local path, in which ``~`` is expanded.

    Raises:
        PlanError: The URL is a chain, such as fsspec's ``simplecache::s3://bucket/key``.
    """
    text = os.fspath(url)
    found = _SCHEME.match(text)
    if found is None:
        if _CHAIN.match(text):
            raise PlanError(
                f"chained URLs are not supported, got {text.partition('::')[0]}::...; use the last one alone"
            )
        return Location("file", os.path.expanduser(text))
    scheme = found[1].lower()
    scheme = _ALIASES.get(scheme, scheme)
    path = text[found.end() :]
    return Location(scheme, os.path.expanduser(path) if scheme == "file" else path)


def split_bucket(path: str) -> tuple[str, str]:
    """Split ``bucket/key`` at its first slash; the key may be empty, and may itself start with a slash."""
    bucket, _, key = path.partition("/")
    return bucket, key


def has_magic(pattern: Url) -> bool:
    """True when ``pattern`` holds a wildcard. HTTP URLs never do: their ``?`` starts a query."""
    location = split_url(pattern)
    return not is_http(location.scheme) and _MAGIC.search(location.path) is not None


def is_http(scheme: str) -> bool:
    return scheme in ("http", "https")


def safe_url(url: Url) -> str:
    """Return ``url`` with passwords and signatures replaced by ``***``, for messages and logs.

    Covered are ``user:password@`` before the host, under every scheme, and under HTTP all query
    values whose name speaks of a key, token or signature (presigned URLs), and all values that
    stand there without a name.
    """
    text = os.fspath(url)
    found = _SCHEME.match(text)
    if found is None:
        return text
    host, slash, rest = text[found.end() :].partition("/")
    host, question, host_query = host.partition("?")
    user, at, host_only = host.rpartition("@")
    if at:
        host = (f"{user.partition(':')[0]}:{_REDACTED}@" if ":" in user else f"{_REDACTED}@") + host_only
    rest = host + question + host_query + slash + rest
    if is_http(found[1].lower()):
        before, question, query = rest.partition("?")
        rest = before + question + "&".join(map(_safe_pair, query.split("&")))
    return found[0] + rest


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return _REDACTED if name else ""
    return f"{name}={_REDACTED}" if value and _SECRET_WORD.search(name) else pair
