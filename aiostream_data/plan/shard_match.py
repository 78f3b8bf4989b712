"""Find the shards of a saved shard list in a new list, although only a summary of the saved list is known."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiostream_data.plan.shard_list import (
    ShardSummary,
    digest_of,
    lasting_urls,
    mark,
    marks_of,
    version_mark,
    version_marks_of,
    versions_of,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import urls_of

GONE: Final = -1
"""Index value for a shard that the new list does not contain."""


@dataclass(frozen=True)
class ShardMatch:
    """Mapping from an old to a new shard list.

    Attributes:
        places: Index of each old shard in the new list, or ``GONE`` if the new list lacks the shard. ``places`` is None
            if the new list begins with the old list.
        fresh: Number of new shards.
        replaced: Indices of old shards whose content changed. ``replaced`` is None if some shards changed but it is
            unknown which shards.
    """

    places: tuple[int, ...] | None
    fresh: int
    replaced: frozenset[int] | None = frozenset()

    @property
    def changes_nothing(self) -> bool:
        """True if both lists contain the same shards with the same content in the same order."""
        return self.places is None and not self.fresh and self.replaced == frozenset()

    @property
    def may_give_more(self) -> bool:
        """True if the new list may contain rows that the old list did not contain."""
        return bool(self.fresh or self.replaced is None or self.replaced)

    @property
    def gone(self) -> set[int]:
        """Indices of old shards that the new list does not contain."""
        return {old for old, place in enumerate(self.places or ()) if place == GONE}

    def place(self, number: int) -> int:
        """Return the index of an old shard in the new list, or ``GONE`` if the shard is missing."""
        return number if self.places is None else self.places[number]


def match_shards(old: ShardSummary, new: Sequence[ShardRef]) -> ShardMatch | None:
    """Find the shards of an old shard list in a new shard list.

    Shards are compared by their URLs, ignoring signatures in the URLs. If the summary of the old list has no marks
    (short hashes), the new list must begin with the old list.

    Returns:
        The mapping, or None if the summary contains too little information to find the shards.
    """
    count = old["count"]
    lasting = lasting_urls(urls_of(new))
    if count <= len(new) and digest_of(lasting[:count]) == old["digest"]:
        return ShardMatch(None, len(new) - count, _replaced(old, new, range(count)))
    marks = marks_of(old)
    if marks is None:
        return None
    found: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for place, url in enumerate(lasting):
        found[mark(url)].append(place)
    places = tuple(found[each].popleft() if found[each] else GONE for each in marks)
    return ShardMatch(places, len(new) - sum(place != GONE for place in places), _replaced(old, new, places))


def _replaced(old: ShardSummary, new: Sequence[ShardRef], places: Sequence[int]) -> frozenset[int] | None:
    by, versions = versions_of(new)
    if "versions" not in old or old.get("by", "version") != by:
        return frozenset()
    now = [None if place == GONE else versions[place] for place in places]
    complete = None not in now
    if complete and digest_of(list(map(str, now))) == old["versions"]:
        return frozenset()
    marks = version_marks_of(old)
    if marks is None:
        return None
    changed = {
        number
        for number, (before, version) in enumerate(zip(marks, now, strict=True))
        if version is not None and version_mark(str(version)) != before
    }
    return frozenset(changed) if changed or not complete else None
