"""Find the keys that match a pattern: several listings at once, and none of them twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aiostream_data.errors import StorageError
from aiostream_data.storage.key_levels import LevelStep, lists_flat, next_step
from aiostream_data.storage.patterns import compile_pattern
from aiostream_data.storage.urls import safe_url

T = TypeVar("T")

LISTINGS_AT_ONCE = 16

PAGE_KEYS = 1000
"""What S3 gives at most."""


class ListedKey(NamedTuple):
    """One key, as a listing tells of it."""

    key: str
    nbytes: int
    version: str


class PageRequest(NamedTuple):
    """What a store is asked for.

    Attributes:
        prefix: Keys begin with it.
        folded: Give keys without ``/`` behind the prefix, and instead of the others what they begin with up to there.
        most: Keys to give.
        token: Where the page before ended; "" for the first.
    """

    prefix: str
    folded: bool
    most: int
    token: str = ""


class Page(NamedTuple):
    """What it answers; ``token`` is "" after the last page."""

    entries: list[ListedKey]
    directories: list[str]
    token: str


ListPage: TypeAlias = Callable[[PageRequest], Awaitable[Page]]


class KeySearch:
    """Finds keys in the buckets of one store. Used from one event loop.

    A search that failed and is begun again does not ask again for pages that had come: a long listing ends although
    every now and then a request fails.
    """

    def __init__(self) -> None:
        self._at_once = asyncio.Semaphore(LISTINGS_AT_ONCE)
        self._pages: dict[str, dict[PageRequest, Page]] = {}

    async def find(self, url: str, key_pattern: str, list_page: ListPage) -> list[ListedKey]:
        """Return what matches, sorted by key; names that end with ``/`` are directories, and left out.

        Args:
            url: The whole pattern; names the search.
            list_page: Asks the bucket for one page.

        Raises:
            StorageError: What ``list_page`` raised, after all that was asked for has come or failed.
        """
        search = _Search(url, key_pattern, list_page, self._pages.setdefault(url, {}), self._at_once)
        await search.below("", key_pattern)
        self._pages.pop(url, None)
        return [search.found[key] for key in sorted(search.found)]


class _Search:
    def __init__(
        self,
        url: str,
        key_pattern: str,
        list_page: ListPage,
        pages: dict[PageRequest, Page],
        at_once: asyncio.Semaphore,
    ) -> None:
        self.found: dict[str, ListedKey] = {}
        self._url = url
        self._matches = compile_pattern(key_pattern).fullmatch
        self._list_page = list_page
        self._pages = pages
        self._at_once = at_once

    async def below(self, directory: str, pattern: str) -> None:
        """Find what matches the rest of the pattern below a directory."""
        step = next_step(directory, pattern)
        if not step.segment:
            self._take((await self._page(PageRequest(step.prefixes[0], folded=True, most=1))).entries)
        elif step.is_last or step.is_deep:
            await _all(self._list(prefix, folded=step.is_last) for prefix in step.prefixes)
        else:
            await _all(self._directories(step, prefix) for prefix in step.prefixes)

    async def _directories(self, step: LevelStep, prefix: str) -> None:
        """Look into the directories that match: into all of them with one listing, where that is not more to read."""
        first = PageRequest(prefix, folded=False, most=PAGE_KEYS)
        page = await self._page(first)
        if not page.token or lists_flat(step, [entry.key for entry in page.entries]):
            await self._list(prefix, folded=False)
            return
        matches = compile_pattern(step.segment).fullmatch
        directories = await self._list(prefix, folded=True)
        names = (directory for directory in directories if matches(directory[len(step.directory) : -1]))
        await _all(self.below(directory, step.rest) for directory in names)

    async def _list(self, prefix: str, *, folded: bool) -> list[str]:
        """Take what matches of a whole listing, page by page, and return the directories that it folded."""
        directories: list[str] = []
        tokens: set[str] = set()
        request = PageRequest(prefix, folded, PAGE_KEYS)
        before: Page | None = None
        while True:
            page = await self._page(request)
            if before is not None and _is_again(before, page):
                raise StorageError(safe_url(self._url), "the store's listing gives the same page again and again")
            before = page
            self._take(page.entries)
            directories += page.directories
            if not page.token:
                return directories
            if page.token in tokens:
                raise StorageError(safe_url(self._url), "the store's listing goes in a circle, and does not end")
            tokens.add(page.token)
            request = request._replace(token=page.token)

    def _take(self, entries: Iterable[ListedKey]) -> None:
        for entry in entries:
            if self._matches(entry.key) and not entry.key.endswith("/"):
                self.found[entry.key] = entry

    async def _page(self, request: PageRequest) -> Page:
        known = self._pages.get(request)
        if known is None:
            async with self._at_once:
                known = self._pages[request] = await self._list_page(request)
        return known


def _is_again(before: Page, page: Page) -> bool:
    return bool(page.entries or page.directories) and before[:2] == page[:2]


async def _all(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all parts to their end, then raise the first failure of them."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        if tasks:
            await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
