"""Compare two shard lists by their summaries. If possible, name the new shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from aiostream_data.object_names import object_name
from aiostream_data.plan.changes import CONTENT, Difference
from aiostream_data.plan.shard_list import ShardSummary, alike_by, marks_of, version_marks_of

_MAX_NAMED = 5


def shard_difference(old: object, new: ShardSummary, urls: Sequence[str] = (), source: str = "") -> Difference | None:
    """Describe the difference between two shard lists in one sentence. Return None if the lists are equal.

    Args:
        old: Summary from a saved state; may be damaged.
        new: Summary of the current shard list.
        urls: URLs of the current shard list, used to name shards in messages.
        source: Name of the source; empty if the plan has only one source.
    """
    prefix = f"{source}: " if source else ""
    before = _checked(old)
    if before is None:
        return Difference("plan", "plan", f"{prefix}the shard list stored in the state is damaged")
    if before["digest"] == new["digest"]:
        sentence, name = _replaced(before, new, urls), CONTENT
    else:
        sentence, name = _by_name(before, new, urls) or _by_number(before, new), "shards"
    return Difference("shards", name, prefix + sentence) if sentence else None


def _checked(summary: object) -> ShardSummary | None:
    if not isinstance(summary, dict):
        return None
    fits = type(summary.get("count")) is int and isinstance(summary.get("digest"), str)
    return cast(ShardSummary, summary) if fits else None


def _replaced(old: ShardSummary, new: ShardSummary, urls: Sequence[str]) -> str:
    versions: tuple[Any, Any] = old.get("versions"), new.get("versions")
    if not alike_by(old, new) or versions[0] == versions[1]:
        return ""
    before, after = version_marks_of(old), version_marks_of(new)
    if before is None or after is None or len(before) != len(after) or before == after:
        return "shards changed: their sizes, times or versions differ"
    places = [at for at, (mark, other) in enumerate(zip(before, after, strict=True)) if mark != other]
    return f"{_shards(len(places))} changed since in size, time or version{_named(places, urls)}"


def _by_name(old: ShardSummary, new: ShardSummary, urls: Sequence[str]) -> str:
    before, after = marks_of(old), marks_of(new)
    if before is None or after is None:
        return ""
    missing = Counter(before)
    fresh = []
    for at, mark in enumerate(after):
        if missing[mark]:
            missing[mark] -= 1
        else:
            fresh.append(at)
    gone = missing.total()
    parts = [f"{_shards(len(fresh), present=True)} new{_named(fresh, urls)}"] if fresh else []
    parts += [f"{gone} shard{'s' * (gone > 1)} of the state {'are' if gone > 1 else 'is'} missing"] if gone else []
    return "; ".join(parts) or "the shards are the same, but in another order"


def _by_number(old: ShardSummary, new: ShardSummary) -> str:
    if old["count"] != new["count"]:
        return f"the shard list changed: {old['count']:,} in the state, {new['count']:,} now"
    return f"the shard list changed: still {new['count']:,} shards, but with other names or in another order"


def _shards(count: int, present: bool = False) -> str:
    verb = ("is" if count == 1 else "are") if present else ("was" if count == 1 else "were")
    return f"{count:,} shard{'' if count == 1 else 's'} {verb}"


def _named(places: Sequence[int], urls: Sequence[str]) -> str:
    names = [object_name(urls[at]) for at in places[:_MAX_NAMED] if at < len(urls)]
    if len(places) > len(names) and names:
        names.append("...")
    return f": {', '.join(names)}" if names else ""
