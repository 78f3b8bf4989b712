"""Write requests: only what can be written safely."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

_TARGET: Final = re.compile(r"/[!-~]*")
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def request_head(method: str, host: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return a request without a body.

    Args:
        method: GET or HEAD.
        host: Value of the Host header.
        target: Path and query, quoted.
        headers: All others.

    Raises:
        ValueError: A part of it would end the line it stands in, or is no ASCII.
    """
    if _TARGET.fullmatch(target) is None:
        raise ValueError("the path of a URL must be quoted")
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}"]
    for name, value in headers.items():
        if not _is_name(name) or _VALUE.fullmatch(value) is None:
            raise ValueError(f"the header {name[:40]!r} cannot be sent")
        lines.append(f"{name}: {value}")
    lines += ["", ""]
    return "\r\n".join(lines).encode("latin-1")


@lru_cache(maxsize=256)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
