"""Parse URLs and paths, and remove secrets from URLs for messages."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from aiostream_data.arguments import check_slashes
from aiostream_data.errors import PlanError
from aiostream_data.safe_url import parts_of
from aiostream_data.safe_url import safe_url as safe_url  # re-exported for stores

Url: TypeAlias = "str | os.PathLike[str]"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CHAIN = re.compile(r"[A-Za-z0-9+.-]+::.*://", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "local": "file"}
_WITH_BUCKETS = ("s3", "gs")
_MAGIC = re.compile(r"[*?\[]")


class Location(NamedTuple):
    """Location of an object: URL scheme and path.

    Attributes:
        scheme: Scheme in lower case with aliases resolved: ``file``, ``memory``, ``s3``, ``gs``, ``http`` ...
        path: Text after ``://``, without decoding of ``%`` sequences; a plain path for the scheme ``file``.
    """

    scheme: str
    path: str


def split_url(url: Url) -> Location:
    """Split a URL or path into scheme and path. Text without ``scheme://`` is a local path, in which ``~`` is expanded.

    Raises:
        PlanError: The URL lacks slashes or its bucket, or is a chain such as ``simplecache::s3://bucket/key``.
    """
    text = os.fspath(url)
    if text.startswith("/"):
        return Location("file", text)
    location = _split(text)
    return Location("file", os.path.expanduser(location.path)) if location.scheme == "file" else location


@lru_cache(maxsize=4096)
def _split(text: str) -> Location:
    """Split a URL or path without expanding ``~``. Results are cached, because every range request splits a URL."""
    found = _SCHEME.match(text)
    if found is None:
        if _CHAIN.match(text):
            raise PlanError(
                f"chained URLs are not supported, got {text.partition('::')[0]}::...; use the last URL alone"
            )
        check_slashes(text)
        return Location("file", text)
    scheme = _ALIASES.get(found[1].lower(), found[1].lower())
    path = text[found.end() :]
    if scheme in _WITH_BUCKETS and path.startswith("/"):
        raise PlanError(
            f"URL must have a bucket after its scheme, as in '{scheme}://bucket/key', got {safe_url(text)!r}"
        )
    return Location(scheme, path)


def path_of(url: str) -> str:
    """Return the part of a URL after ``scheme://``, which is the path of :func:`split_url` for remote objects."""
    return url.partition("://")[2]


def split_bucket(path: str) -> tuple[str, str]:
    """Split ``bucket/key`` at its first slash. The key may be empty or start with a slash."""
    bucket, _, key = path.partition("/")
    return bucket, key


def folder_hint(url: str) -> str:
    """If the URL looks like a folder, return a hint for the message of an ObjectNotFoundError, else ""."""
    location = split_url(url)
    key = split_bucket(location.path)[1]
    looks_so = key.endswith("/") or "." not in key.rpartition("/")[2]
    return "; to read the objects in a folder, add '/*'" if looks_so and location.scheme in _WITH_BUCKETS else ""


def shown_bucket(url: str) -> str:
    """Return the bucket of a URL for messages, without user name and password."""
    return parts_of(safe_url(url)).host


def has_magic(pattern: Url) -> bool:
    """Return True if ``pattern`` contains a wildcard. HTTP URLs have no wildcards, because ``?`` starts a query."""
    location = split_url(pattern)
    return not is_http(location.scheme) and _MAGIC.search(location.path) is not None


def is_http(scheme: str) -> bool:
    return scheme in ("http", "https")
