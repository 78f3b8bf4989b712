"""One difference between the pipeline of a state and the one it is opened with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["argument", "function", "operator", "ordered", "plan", "seed", "shards", "world_size"]

REFUSED: Final = frozenset({"argument", "function", "operator", "plan", "seed", "shards"})
"""Kinds that a state is refused for, unless they are allowed."""

ALWAYS_ALLOWED: Final = frozenset({"concurrency", "device", "executor", "ordered", "prefetch"}) | {
    "memory_limit",
    "weights",
    "workers",
    "world_size",
}
"""What may be changed at any time; most of it is not even recorded."""


CONTENT: Final = "content"
"""Name of the difference that shards have other sizes or versions, allowed where their records are the same."""


@dataclass(frozen=True)
class Difference:
    """What differs, as a sentence.

    Attributes:
        kind: What sort of difference it is; what ``allow=`` takes.
        name: What it is in, more narrowly: "shuffle.buffer_size"; ``allow=`` takes this, too.
        sentence: For a message; begins in lower case and has no full stop.
    """

    kind: Kind
    name: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
