"""Take URLs and paths apart, and make them safe to print."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from aiostream_data.arguments import check_slashes
from aiostream_data.errors import PlanError
from aiostream_data.safe_url import parts_of
from aiostream_data.safe_url import safe_url as safe_url  # those of stores find it here

Url: TypeAlias = "str | os.PathLike[str]"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CHAIN = re.compile(r"[A-Za-z0-9+.-]+::.*://", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "local": "file"}
_WITH_BUCKETS = ("s3", "gs")
_MAGIC = re.compile(r"[*?\[]")


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
        PlanError: The URL is a chain, such as fsspec's ``simplecache::s3://bucket/key``, lacks slashes, or its bucket.
    """
    location = _split(os.fspath(url))
    return Location("file", os.path.expanduser(location.path)) if location.scheme == "file" else location


@lru_cache(maxsize=4096)
def _split(text: str) -> Location:
    """Split once what is asked for with every range of a shard."""
    found = _SCHEME.match(text)
    if found is None:
        if _CHAIN.match(text):
            raise PlanError(
                f"chained URLs are not supported, got {text.partition('::')[0]}::...; use the last one alone"
            )
        check_slashes(text)
        return Location("file", text)
    scheme = _ALIASES.get(found[1].lower(), found[1].lower())
    path = text[found.end() :]
    if scheme in _WITH_BUCKETS and path.startswith("/"):
        raise PlanError(f"a URL has a bucket behind its scheme: write '{scheme}://bucket/key', got {safe_url(text)!r}")
    return Location(scheme, path)


def split_bucket(path: str) -> tuple[str, str]:
    """Split ``bucket/key`` at its first slash; the key may be empty, and may itself start with a slash."""
    bucket, _, key = path.partition("/")
    return bucket, key


def folder_hint(url: str) -> str:
    """Return a clause for the message that there is no such object, if the URL looks like a folder; else ""."""
    location = split_url(url)
    key = split_bucket(location.path)[1]
    looks_so = key.endswith("/") or "." not in key.rpartition("/")[2]
    return "; for the objects below a folder add '/*'" if looks_so and location.scheme in _WITH_BUCKETS else ""


def shown_bucket(url: str) -> str:
    """Return the bucket of a URL for messages, without user name and password."""
    return parts_of(safe_url(url)).host


def has_magic(pattern: Url) -> bool:
    """True when ``pattern`` holds a wildcard. HTTP URLs never do: their ``?`` starts a query."""
    location = split_url(pattern)
    return not is_http(location.scheme) and _MAGIC.search(location.path) is not None


def is_http(scheme: str) -> bool:
    return scheme in ("http", "https")
