"""Renew expired credentials only once, for all requests that the store refused because of these credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiostream_data.errors import CredentialsError

T = TypeVar("T")


_MOST_RENEWALS = 10
"""Bound on the renewals that one request may wait for."""


class Renewal:
    """Renews the credentials of one store, on one event loop.

    Args:
        renew: Coroutine function that loads the credentials again from files, environment or metadata service.
    """

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self._renewing = asyncio.Lock()
        self._accepted = 0  # the latest renewal whose credentials the store accepted
        self.renewed = 0

    async def trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``await attempt()``.

        If the credentials have expired, renew the credentials and retry. A slow request may meet several sets of
        credentials that expire one after another.

        Raises:
            CredentialsError: The store never accepted the renewed credentials, or no credentials were found.
        """
        for _ in range(_MOST_RENEWALS):
            used = self.renewed
            try:
                result = await attempt()
            except CredentialsError as error:
                if not error.is_expired or self._is_useless(used):
                    raise
            else:
                self._accepted = max(self._accepted, used)
                return result
            async with self._renewing:
                if self.renewed == used:  # no other request has renewed the credentials
                    await self._renew()
                    self.renewed += 1
        return await attempt()

    def _is_useless(self, used: int) -> bool:
        """Return True if these are the newest credentials and the store never accepted them, even after a renewal."""
        return 0 < used == self.renewed > self._accepted
