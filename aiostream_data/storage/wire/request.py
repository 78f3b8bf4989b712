"""Format HTTP request heads, and reject values that would allow header injection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from aiostream_data.errors import PlanError

_TARGET: Final = re.compile(r"/[!-~]*")
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUES: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def request_head(method: str, host: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Format an HTTP request without a body.

    Args:
        method: GET or HEAD.
        host: Value of the Host header.
        target: URL path and query, percent-encoded.
        headers: All other headers.

    Raises:
        PlanError: The request path or a header contains a line break or another invalid character.
    """
    return request_of_lines(method, host, target, header_lines(headers))


def request_of_lines(method: str, host: str, target: str, lines: str) -> bytes:
    """Format an HTTP request without a body, with the headers in ``lines`` from :func:`header_lines`.

    Raises:
        PlanError: The request path contains a line break or another invalid character.
    """
    if _TARGET.fullmatch(target) is None:
        raise PlanError("the path of a URL must be percent-encoded")
    return f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n{lines}\r\n".encode("latin-1")


def header_lines(headers: Mapping[str, str]) -> str:
    """Format request headers.

    Raises:
        PlanError: A header contains a line break or another invalid character.
    """
    if not _are_names(tuple(headers)) or _VALUES.fullmatch("".join(headers.values())) is None:
        raise PlanError(
            f"cannot send header {_unfit(headers)[:40]!r}: its name or value contains invalid characters; "
            "remove line breaks and control characters"
        )
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


@lru_cache(maxsize=256)
def _are_names(names: tuple[str, ...]) -> bool:
    return all(_NAME.fullmatch(name) is not None for name in names)


def _unfit(headers: Mapping[str, str]) -> str:
    """Return the name of the first header with an invalid name or value."""
    return next(n for n, value in headers.items() if not _are_names((n,)) or _VALUES.fullmatch(value) is None)
