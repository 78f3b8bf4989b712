"""Follow redirects safely: send no secrets to other origins, and never redirect from HTTPS to HTTP.

The built-in HTTP client follows no redirects, so redirected requests are repeated with the store's library. All store
libraries send requests with aiohttp. Before following a redirect, aiohttp calls a trace function with the headers of
the next request. The trace function raises an error to refuse the redirect, or removes unsafe headers. Removed headers
stay removed, even if a later redirect leads back to the first origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiostream_data.errors import RedirectRefusedError
from aiostream_data.storage.urls import safe_url

if TYPE_CHECKING:
    import aiohttp
    import yarl

KEPT: Final = frozenset({"range", "if-match", "accept-encoding"})
"""Headers that may be sent to another origin. Other headers may contain a token, a cookie or an encryption key."""


def redirect_guard() -> aiohttp.TraceConfig:
    """Return an aiohttp trace configuration that checks redirects and removes unsafe headers."""
    import aiohttp

    guard = aiohttp.TraceConfig()
    guard.on_request_redirect.append(_before_redirect)
    guard.freeze()
    return guard


def guard_client(client: Any) -> None:
    """Add the redirect guard to all aiohttp sessions of an aiobotocore client, which creates one session per proxy."""
    http_session = client._endpoint.http_session
    make = http_session._get_session
    guard = redirect_guard()

    async def guarded(proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await make(proxy_url)
        if guard not in session.trace_configs:
            session.trace_configs.append(guard)
        return session

    http_session._get_session = guarded


def check_redirect(here: yarl.URL, location: str) -> bool:
    """Return True if a redirect leads to another origin.

    Raises:
        RedirectRefusedError: The redirect leads from HTTPS to HTTP, or its target is not an HTTP URL.
    """
    import yarl

    try:
        named = yarl.URL(location)
        there = here.join(named)
        origin = there.origin()
    except ValueError:
        raise RedirectRefusedError(safe_url(str(here)), "the server redirects to an invalid URL") from None
    if named.scheme not in ("", "http", "https"):
        raise RedirectRefusedError(safe_url(str(here)), f"the server redirects to a {named.scheme[:20]!r} URL")
    if here.scheme == "https" and there.scheme != "https":
        raise RedirectRefusedError(
            safe_url(str(here)),
            f"the server redirects from HTTPS to {origin}, which is not encrypted; "
            "correct the redirect, or use its URL if you trust the network",
        )
    return (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port)  # yarl fills in default ports


async def _before_redirect(session: aiohttp.ClientSession, context: object, told: Any) -> None:
    location = told.response.headers.get("Location") or told.response.headers.get("URI")
    if location is not None and check_redirect(told.url, location):
        for name in [name for name in told.headers if name.lower() not in KEPT]:
            told.headers.popall(name, None)
