"""Differences between the pipeline of a saved state and the current pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["argument", "function", "operator", "ordered", "plan", "seed", "shards", "world_size"]

REFUSED: Final = frozenset({"argument", "function", "operator", "plan", "seed", "shards"})
"""Kinds of differences between pipelines that prevent resuming unless the user allows them."""

ALWAYS_ALLOWED: Final = frozenset({"concurrency", "device", "executor", "ordered", "prefetch"}) | {
    "memory_limit",
    "weights",
    "workers",
    "world_size",
}
"""Settings that may change between a saved state and the resumed run. Saved states do not record most of the settings
that may change."""


CONTENT: Final = "content"
"""Name of a difference: the sizes or versions of shards changed. If the records in the shards are unchanged, users can
allow the difference "content"."""


@dataclass(frozen=True)
class Difference:
    """One difference between the saved pipeline and the current pipeline.

    Attributes:
        kind: Category of the difference. Users can pass the category to ``allow=``.
        name: Operator and argument that differ, such as "shuffle.buffer_size". Users can pass the name to ``allow=``.
        sentence: Description for messages, in lower case and without a full stop.
    """

    kind: Kind
    name: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
