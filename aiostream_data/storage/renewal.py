"""Renew expired credentials only once, for all requests that the store refused because of these credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiostream_data.errors import CredentialsError

T = TypeVar("T")


class Renewal:
    """Renews the credentials of one store, on one event loop.

    Args:
        renew: Coroutine function that loads the credentials again from files, environment or metadata service.
    """

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self._renewing = asyncio.Lock()
        self.renewed = 0

    async def trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``await attempt()``.

        If the credentials have expired, renew the credentials and retry once.

        Raises:
            CredentialsError: The renewed credentials have expired, or no credentials were found.
        """
        before = self.renewed
        try:
            return await attempt()
        except CredentialsError as error:
            if not error.is_expired:
                raise
        async with self._renewing:
            if self.renewed == before:  # no other request has renewed the credentials
                await self._renew()
                self.renewed += 1
        return await attempt()
