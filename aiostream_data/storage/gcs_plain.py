"""What a plain GET to Google Cloud Storage needs to know, taken from gcsfs: address, token, and who pays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aiostream_data.storage.wire.client import RequestTarget

_PORTS: Final = {"http": 80, "https": 443}


class GcsPlain:
    """Makes plain GETs with the credentials of one file system.

    Args:
        file_system: Of gcsfs.
        renew: ``await renew()`` has the token refreshed on a worker thread.
    """

    def __init__(self, file_system: Any, renew: Callable[[], Awaitable[Any]]) -> None:
        self._file_system = file_system
        self._renew = renew
        self._renewing = asyncio.Lock()

    def target(self, path: str, params: Mapping[str, str]) -> RequestTarget:
        """Return where a request goes.

        Args:
            path: Behind the server's name, quoted.
        """
        parts = urlsplit(self._file_system._location)
        query = urlencode(self._file_system._get_params(dict(params)))
        where = f"{parts.path.rstrip('/')}/{path}" + (f"?{query}" if query else "")
        return RequestTarget(parts.hostname or "", parts.port or _PORTS[parts.scheme], parts.scheme == "https", where)

    async def headers(self) -> dict[str, str]:
        """Return the headers that authorize a request. The first caller to find the token expired renews it for all."""
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
        """Treat the token as expired: Google refused it."""
        credentials = self._file_system.credentials.credentials
        if credentials is not None:
            credentials.token = None
