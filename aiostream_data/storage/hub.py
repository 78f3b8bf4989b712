"""Store for files of data sets on the Hugging Face Hub, under ``hf://``.

The API of the Hub lists files. Their bytes are read with range requests, as those of other HTTP servers. A store finds
the commit of each revision once, and reads all files at this commit. Files of a commit never change.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    NoMatchError,
    ObjectNotFoundError,
    PlanError,
)
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import RunBlocking, StoreOptions
from aiostream_data.storage.http import HttpStore, headers_of
from aiostream_data.storage.hub_api import HubApi, endpoint_of_hub, stored_token
from aiostream_data.storage.hub_urls import HubPlace, hub_place, is_commit
from aiostream_data.storage.patterns import compile_pattern, hint_of, plan_listing
from aiostream_data.storage.urls import has_magic, safe_url

_OWN: Final = ("token", "endpoint")


class HubStore:
    """Store for the Hub. Options besides those of :class:`HttpStore`:

    - ``token``: access token; False for none. By default, ``HF_TOKEN`` or the token of ``hf auth login``.
    - ``endpoint``: URL of the Hub. By default, ``HF_ENDPOINT`` or ``https://huggingface.co``.

    Raises:
        PlanError: An option is invalid.
    """

    def __init__(self, options: StoreOptions, run_blocking: RunBlocking) -> None:
        self._endpoint = endpoint_of_hub(options)
        self._token = options.get("token")
        if self._token is not None and self._token is not False and not isinstance(self._token, str):
            raise PlanError(f"token must be a text, False or None, got {shown_option(self._token)}")
        self._options = {name: value for name, value in options.items() if name not in _OWN}
        self._headers = headers_of(self._options)
        self._run_blocking = run_blocking
        self._opening = asyncio.Lock()
        self._opened: tuple[HubApi, HttpStore] | None = None
        self._commits: dict[tuple[str, str], str] = {}
        self._folders: dict[tuple[str, str, str, bool], dict[str, int]] = {}
        self._asking = asyncio.Lock()

    async def info(self, url: str) -> ShardRef:
        place = hub_place(url)
        commit = await self._commit(url, place)
        files = await self._files(url, place, commit, place.path.rpartition("/")[0], below=False)
        if place.path not in files:
            raise ObjectNotFoundError(url, "the data set has no such file")
        return ShardRef(url, files[place.path], commit)

    async def glob(self, pattern: str) -> list[ShardRef]:
        if not has_magic(pattern):
            return [await self.info(pattern)]
        place = hub_place(pattern)
        commit = await self._commit(pattern, place)
        listing = plan_listing(place.path)
        folder = listing.prefix.rpartition("/")[0]
        files = await self._files(pattern, place, commit, folder, below=not listing.one_level)
        matches = compile_pattern(place.path).fullmatch
        found = sorted(path for path in files if matches(path))
        if not found:
            raise NoMatchError(safe_url(pattern), f"no file of the data set matches{hint_of(pattern)}")
        return [ShardRef(place.root + path, files[path], commit) for path in found]

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        if not buffer:
            return
        place = hub_place(shard.url)
        commit = await self._commit(shard.url, place)
        _, store = await self._open()
        target = f"{self._endpoint}/datasets/{place.repository}/resolve/{commit}/{quote(place.path)}"
        try:
            await store.read_into(ShardRef(target, shard.nbytes), start, buffer)
        except (AccessDeniedError, CredentialsError) as error:
            page = f"{self._endpoint}/datasets/{place.repository}"
            reason = f"{error.reason}. If the data set is private or gated, ask for access at {page} and pass token="
            raise type(error)(shard.url, reason) from error

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            api, store = opened
            try:
                await api.aclose()
            finally:
                await store.aclose()

    async def _open(self) -> tuple[HubApi, HttpStore]:
        """Return the clients, which need the token."""
        async with self._opening:
            if self._opened is None:
                token = self._token if self._token is not None else await self._run_blocking(stored_token)
                secret = {"Authorization": f"Bearer {token}"} if token else {}
                # The Hub redirects most downloads, which the built-in client does not follow.
                options: dict[str, Any] = {
                    "reader": "library",
                    **self._options,
                    "headers": {**secret, **self._headers},
                }
                self._opened = HubApi(self._endpoint, options), HttpStore(options)
        return self._opened

    async def _commit(self, url: str, place: HubPlace) -> str:
        if is_commit(place.revision):
            return place.revision
        key = place.repository, place.revision
        async with self._asking:
            if key not in self._commits:
                api, _ = await self._open()
                self._commits[key] = await api.commit(url, place)
        return self._commits[key]

    async def _files(self, url: str, place: HubPlace, commit: str, folder: str, *, below: bool) -> dict[str, int]:
        """Return the sizes of the files in a folder by path. Each folder is listed once."""
        key = place.repository, commit, folder, below
        async with self._asking:
            if key not in self._folders:
                api, _ = await self._open()
                self._folders[key] = await api.files(url, place, commit, folder, below=below)
        return self._folders[key]
