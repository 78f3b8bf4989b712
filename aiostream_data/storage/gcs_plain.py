"""Compute the address and headers of plain GET requests to Google Cloud Storage, from a gcsfs file system."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aiostream_data.storage.wire.client import RequestTarget

_PORTS: Final = {"http": 80, "https": 443}


class GcsPlain:
    """Builder of plain GET requests with the credentials of one file system.

    Args:
        file_system: A gcsfs file system.
        renew: ``await renew()`` refreshes the token on a worker thread.
    """

    def __init__(self, file_system: Any, renew: Callable[[], Awaitable[Any]]) -> None:
        self._file_system = file_system
        self._renew = renew
        self._renewing = asyncio.Lock()

    def target(self, path: str, params: Mapping[str, str]) -> RequestTarget:
        """Return the address of a request.

        Args:
            path: Percent-encoded path after the endpoint, without a leading slash.
        """
        parts = urlsplit(self._file_system._location)
        query = urlencode(self._file_system._get_params(dict(params)))
        where = f"{parts.path.rstrip('/')}/{path}" + (f"?{query}" if query else "")
        return RequestTarget(parts.hostname or "", parts.port or _PORTS[parts.scheme], parts.scheme == "https", where)

    async def headers(self) -> dict[str, str]:
        """Return the authorization headers.

        The first caller after the token has expired renews the token for all callers.
        """
        credentials = self._file_system.credentials.credentials
        if credentials is None:
            return {}
        if not credentials.valid:
            async with self._renewing:
                if not credentials.valid:
                    await self._renew()
        headers: dict[str, str] = {}
        credentials.apply(headers)
        return headers

    def distrust(self) -> None:
        """Discard the access token, because Google refused it."""
        credentials = self._file_system.credentials.credentials
        if credentials is not None:
            credentials.token = None
