"""URLs as messages, logs and notes may show them: without passwords and signatures."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_REDACTED = "***"
_SECRET_WORD = re.compile(r"sig|token|secret|key|password|credential|auth", re.IGNORECASE)


def safe_url(url: str | os.PathLike[str]) -> str:
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
    if found[1].lower() in ("http", "https"):
        before, question, query = rest.partition("?")
        rest = before + question + "&".join(map(_safe_pair, query.split("&")))
    return found[0] + rest


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals:
        return _REDACTED if name else ""
    return f"{name}={_REDACTED}" if value and _SECRET_WORD.search(name) else pair
