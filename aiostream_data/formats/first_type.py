"""Name the file from which a type was inferred, in the error of a file that contradicts it."""

from __future__ import annotations

from aiostream_data.safe_url import safe_url


def type_inferred_from(first: str, url: str) -> str:
    """Return the end of a phrase that names a type.

    Args:
        first: URL of the file from which the type was inferred, or "" for a declared type.
        url: URL of the file that contradicts the type.
    """
    if not first:
        return ""
    file = "this file" if safe_url(first) == safe_url(url) else safe_url(first)
    return f", the type inferred from the start of {file}"
