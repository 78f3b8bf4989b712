"""Credentials that a store calls expired are renewed by force once, for all requests that were refused for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiostream_data.errors import CredentialsError

T = TypeVar("T")


class Renewal:
    """For one store, on one event loop.

    Args:
        renew: ``await renew()`` asks the provider again: files, environment, metadata service.
    """

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self._renewing = asyncio.Lock()
        self.renewed = 0

    async def trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what ``await attempt()`` gives; try once more with fresh credentials where they have expired.

        Raises:
            CredentialsError: The fresh ones have expired, too, or there are none.
        """
        before = self.renewed
        try:
            return await attempt()
        except CredentialsError as error:
            if not error.is_expired:
                raise
        async with self._renewing:
            if self.renewed == before:  # nobody has been quicker
                await self._renew()
                self.renewed += 1
        return await attempt()
