"""HTTP transport that refreshes Google tokens within a time limit.

google-auth refreshes credentials in a blocking call on a worker thread and sends requests through a transport object.
The default transport of google-auth limits the pauses within a response, but not the total time. A server that sends
one byte per second could block the thread for a long time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

from aiostream_data.errors import StoreTimeoutError
from aiostream_data.storage.body import read_at_most
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.tls import client_context

ANSWER_NBYTES: Final = 1 << 20
TIMEOUT_S: Final = 120.0
"""Time limit for one request in seconds, as in google-auth."""


class TokenAnswer(NamedTuple):
    """HTTP response with the attributes that google-auth reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class TokenRequest:
    """Transport for the requests of one token refresh. The transport blocks the calling thread and runs a private event
    loop.

    Args:
        limit_s: Time limit in seconds for all requests of a refresh together, or None to limit only the time of each
            request.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._ends_at = None if limit_s is None else monotonic() + limit_s

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> TokenAnswer:
        """Send a request and wait for its response. Do not follow redirects.

        Raises:
            TransportError: The server did not answer the request. google-auth may retry the request.
            StoreTimeoutError: The time limit for all requests has passed.
        """
        import aiohttp
        from google.auth.exceptions import TransportError

        left_s = TIMEOUT_S if self._ends_at is None else self._ends_at - monotonic()
        if left_s <= 0:
            raise StoreTimeoutError(safe_url(url), "the token server did not answer in time; try again later")
        try:
            return asyncio.run(_send(url, method, body, headers, min(left_s, timeout or TIMEOUT_S)))
        except (OSError, ValueError, aiohttp.ClientError) as error:
            raise TransportError(f"no token: {type(error).__name__}") from error  # type: ignore[no-untyped-call]


async def _send(
    url: str, method: str, body: bytes | str | None, headers: Mapping[str, str] | None, timeout_s: float
) -> TokenAnswer:
    import aiohttp

    tls = client_context() if url.startswith("https:") else True
    async with asyncio.timeout(timeout_s), aiohttp.ClientSession(trust_env=True) as session:
        request = session.request(method, url, data=body, headers=headers, ssl=tls, allow_redirects=False)
        async with request as answer:
            try:
                return TokenAnswer(answer.status, answer.headers, await read_at_most(answer.content, ANSWER_NBYTES))
            finally:
                if not answer.content.at_eof():
                    answer.close()
