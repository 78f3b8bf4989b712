"""Follow redirects without giving secrets away: only safe headers go to another origin, and HTTPS stays HTTPS.

How this works. Plain GETs follow no redirect; the library of the store fetches a redirected answer, and every library
here sends its requests by aiohttp. Before aiohttp follows a redirect, it calls a trace function with the headers of the
next request. That function raises where the redirect is refused, and removes headers in place otherwise. Headers that
were removed stay removed, even if a later redirect leads back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiostream_data.errors import RedirectRefusedError
from aiostream_data.storage.urls import safe_url

if TYPE_CHECKING:
    import aiohttp
    import yarl

KEPT: Final = frozenset({"range", "if-match", "accept-encoding"})
"""Headers that may go to another origin. Any other one may hold a secret: a token, a cookie, or a key of encryption."""


def redirect_guard() -> aiohttp.TraceConfig:
    """Return a trace configuration for a session of aiohttp that follows redirects."""
    import aiohttp

    guard = aiohttp.TraceConfig()
    guard.on_request_redirect.append(_before_redirect)
    guard.freeze()
    return guard


def guard_client(client: Any) -> None:
    """Guard the requests of a client of aiobotocore, whose HTTP session makes one aiohttp session for each proxy."""
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
    """Return whether a redirect leads to another origin.

    Raises:
        RedirectRefusedError: It leads from HTTPS to HTTP, or to no HTTP URL.
    """
    import yarl

    try:
        named = yarl.URL(location)
        there = here.join(named)
        origin = there.origin()
    except ValueError:
        raise RedirectRefusedError(safe_url(str(here)), "the server redirects to a location that is no URL") from None
    if named.scheme not in ("", "http", "https"):
        raise RedirectRefusedError(safe_url(str(here)), f"the server redirects to a {named.scheme[:20]!r} URL")
    if here.scheme == "https" and there.scheme != "https":
        raise RedirectRefusedError(
            safe_url(str(here)),
            f"the server redirects from HTTPS to {origin}, where anybody on the way could read and change the object; "
            "correct the redirect, or use its URL if you trust the network",
        )
    return (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port)  # the port may be implied


async def _before_redirect(session: aiohttp.ClientSession, context: object, told: Any) -> None:
    location = told.response.headers.get("Location") or told.response.headers.get("URI")
    if location is not None and check_redirect(told.url, location):
        for name in [name for name in told.headers if name.lower() not in KEPT]:
            told.headers.popall(name, None)
