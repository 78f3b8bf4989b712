"""A flat key space that lists as S3 does: in order, in pages, folded at the next slash when asked to."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from aiostream_data.errors import StoreBusyError
from aiostream_data.storage.key_search import ListedKey, Page, PageRequest

_LAST = "\U0010ffff"


class PagedKeys:
    """Keys, and what was asked of them.

    Args:
        keys: In any order.
        page_keys: Lines of a page, at most.
        failing: From the last on: whether the next request fails.
    """

    def __init__(self, keys: Iterable[str], page_keys: int = 1000, failing: Sequence[bool] = ()) -> None:
        self.keys = sorted(keys)
        self.requests: list[PageRequest] = []
        self.failures = 0
        self.most_at_once = 0
        self._at_once = 0
        self._page_keys = page_keys
        self._failing = list(failing)

    async def page(self, request: PageRequest) -> Page:
        """Answer as a bucket would, a step of the loop later."""
        self.requests.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)
        self._at_once -= 1
        if self._failing and self._failing.pop():
            self.failures += 1
            raise StoreBusyError("s3://b/", "slow down")
        entries, directories, last = list[ListedKey](), list[str](), ""
        for line in self._lines(request):
            if len(entries) + len(directories) == min(request.most, self._page_keys):
                return Page(entries, directories, last)
            last = line
            if request.folded and "/" in line[len(request.prefix) :]:
                directories.append(line)
            else:
                entries.append(ListedKey(line, 1, "v"))
        return Page(entries, directories, "")

    def _lines(self, request: PageRequest) -> Iterator[str]:
        at = bisect_left(self.keys, request.prefix)
        if request.token:
            is_folder = request.folded and request.token.endswith("/") and request.token != request.prefix
            at = max(at, bisect_right(self.keys, request.token + _LAST if is_folder else request.token))
        while at < len(self.keys) and self.keys[at].startswith(request.prefix):
            slash = self.keys[at].find("/", len(request.prefix)) if request.folded else -1
            if slash < 0:
                yield self.keys[at]
                at += 1
            else:
                folder = self.keys[at][: slash + 1]
                yield folder
                at = bisect_right(self.keys, folder + _LAST)
