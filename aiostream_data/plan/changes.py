"""Differences between the pipeline of a saved state and the current pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["argument", "function", "operator", "ordered", "plan", "seed", "shards", "world_size"]

REFUSED: Final = frozenset({"argument", "function", "operator", "plan", "seed", "shards"})
"""Kinds of differences that prevent resuming unless the user allows them."""

ALWAYS_ALLOWED: Final = frozenset({"concurrency", "device", "executor", "ordered", "prefetch"}) | {
    "memory_limit",
    "weights",
    "workers",
    "world_size",
}
"""Settings that may always change between runs. States do not record most of them."""


CONTENT: Final = "content"
"""Name of the difference for shards with changed sizes or versions. Users allow it if the records are unchanged."""


@dataclass(frozen=True)
class Difference:
    """One difference between two pipelines.

    Attributes:
        kind: Category of the difference. Can be passed to ``allow=``.
        name: Operator and argument that differ, e.g. "shuffle.buffer_size". Can be passed to ``allow=``.
        sentence: Description for messages, in lower case and without a full stop.
    """

    kind: Kind
    name: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
