"""Find the object keys that match a pattern, with concurrent listings. No page is requested twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

from aiostream_data.errors import StorageError
from aiostream_data.rows.shard_table import ShardTable, ShardTableWriter
from aiostream_data.storage.key_levels import LevelStep, lists_flat, next_step
from aiostream_data.storage.patterns import compile_pattern, finds_folders
from aiostream_data.storage.urls import safe_url

T = TypeVar("T")

LISTINGS_AT_ONCE = 16

PAGE_KEYS = 1000
"""Number of keys per page of a listing: the maximum that S3 allows."""

_CURE: Final = "use an index file (index=) instead of a pattern"


class ListedKey(NamedTuple):
    """Object key from a listing, with the object's size in bytes and version."""

    key: str
    nbytes: int
    version: str


class PageRequest(NamedTuple):
    """Request for one page of a listing.

    Attributes:
        prefix: Prefix of the object keys to list.
        folded: If a key has a ``/`` after the prefix, return only its directory: the text up to and including this
            ``/``.
        most: Maximum number of keys in the page.
        token: Continuation token from the previous page, or "" for the first page.
    """

    prefix: str
    folded: bool
    most: int
    token: str = ""


class Page(NamedTuple):
    """One page of a listing of object keys.

    The continuation ``token`` requests the next page. The token of the last page is "".
    """

    entries: Sequence[ListedKey]
    directories: list[str]
    token: str


@dataclass(frozen=True, eq=False)
class FoundKeys(Sequence[ListedKey]):
    """Object keys in few blocks of memory. Equal to every sequence of equal keys.

    Attributes:
        table: The keys in place of the URLs of shards.
    """

    table: ShardTable

    @classmethod
    def of(cls, entries: Iterable[ListedKey]) -> FoundKeys:
        """Pack object keys."""
        writer = ShardTableWriter()
        _add(writer, entries)
        return cls(writer.table())

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, place: int) -> ListedKey: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ListedKey]: ...
    def __getitem__(self, place: int | slice) -> ListedKey | Sequence[ListedKey]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        shard = self.table[place]
        return ListedKey(shard.url, shard.nbytes or 0, shard.version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


ListPage: TypeAlias = Callable[[PageRequest], Awaitable[Page]]


class KeySearch:
    """Key search in the buckets of one store. Use each instance from one event loop.

    Received pages are kept until a search succeeds. So the retry of a failed search requests only the missing pages,
    and long listings succeed even if single requests fail.
    """

    def __init__(self) -> None:
        self._at_once = asyncio.Semaphore(LISTINGS_AT_ONCE)
        self._pages: dict[str, dict[PageRequest, Page]] = {}

    async def find(self, url: str, key_pattern: str, list_page: ListPage) -> FoundKeys:
        """Return the keys that match a pattern, sorted. Keys that end with ``/`` are directories and are skipped.

        A pattern such as ``root/*/``, without other wildcards, finds directories instead.

        Args:
            url: URL with the complete pattern, which identifies the search in a retry.
            key_pattern: Pattern for object keys in the bucket.
            list_page: Coroutine function that requests one page from the bucket.

        Raises:
            StorageError: The request for a page failed. This error is raised after all concurrent requests have ended.
        """
        search = _Search(url, key_pattern, list_page, self._pages.setdefault(url, {}), self._at_once)
        await search.below("", key_pattern)
        self._pages.pop(url, None)
        return FoundKeys(search.found.table().in_url_order())


class _Search:
    def __init__(
        self,
        url: str,
        key_pattern: str,
        list_page: ListPage,
        pages: dict[PageRequest, Page],
        at_once: asyncio.Semaphore,
    ) -> None:
        self.found = ShardTableWriter()
        self._url = url
        self._matches = compile_pattern(key_pattern).fullmatch
        self._finds_directories = finds_folders(key_pattern)
        self._list_page = list_page
        self._pages = pages
        self._at_once = at_once

    async def below(self, directory: str, pattern: str) -> None:
        """Find the keys below a directory that match the remaining pattern."""
        step = next_step(directory, pattern)
        if not step.segment:
            self._take((await self._page(PageRequest(step.prefixes[0], folded=True, most=1))).entries)
        elif step.is_last or step.is_deep:
            listed = await _all(self._list(prefix, folded=step.is_last) for prefix in step.prefixes)
            if self._finds_directories:
                names = [name for part in listed for name in part if self._matches(name)]
                _add(self.found, [ListedKey(name, 0, "") for name in names])
        else:
            await _all(self._directories(step, prefix) for prefix in step.prefixes)

    async def _directories(self, step: LevelStep, prefix: str) -> None:
        """Search the matching directories. Use one flat listing for all directories if this needs fewer requests."""
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
        """Request all pages of a listing and record the matching keys. Return the folded directories."""
        directories: list[str] = []
        tokens: set[str] = set()
        request = PageRequest(prefix, folded, PAGE_KEYS)
        before: Page | None = None
        while True:
            page = await self._page(request)
            if before is not None and _is_again(before, page):
                raise StorageError(safe_url(self._url), f"cannot list: the store returned the same page twice; {_CURE}")
            before = page
            self._take(page.entries)
            directories += page.directories
            if not page.token:
                return directories
            if page.token in tokens:
                reason = f"cannot list: the store returned the same page token twice; {_CURE}"
                raise StorageError(safe_url(self._url), reason)
            tokens.add(page.token)
            request = request._replace(token=page.token)

    def _take(self, entries: Iterable[ListedKey]) -> None:
        matches = self._matches
        _add(self.found, [entry for entry in entries if matches(entry.key) and not entry.key.endswith("/")])

    async def _page(self, request: PageRequest) -> Page:
        known = self._pages.get(request)
        if known is None:
            async with self._at_once:
                known = await self._list_page(request)
            self._pages[request] = known._replace(entries=FoundKeys.of(known.entries))
        return known


def _add(writer: ShardTableWriter, entries: Iterable[ListedKey]) -> None:
    columns = list(zip(*entries, strict=True))
    if columns:
        writer.extend(*columns)


def _is_again(before: Page, page: Page) -> bool:
    return bool(page.entries or page.directories) and before[:2] == page[:2]


async def _all(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently. When all coroutines have ended, raise the first failure in argument order."""
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
