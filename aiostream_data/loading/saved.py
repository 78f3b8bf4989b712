"""A loader's state as it is saved: what is in it, and reading it back.

A state ends with a checksum of all that it says. So whoever reads it further need not ask of every number
in it whether a damaged file, or a hand that edited it, has put it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, cast

from aiostream_data.errors import StateMismatchError
from aiostream_data.metrics.stream_hash import combine_hashes
from aiostream_data.state_check import checksum_of_state

VERSION = 1
CHECK = "check"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where a loader stood. Plain data all through: it goes through JSON unchanged.

    Attributes:
        elements: Elements that the consumer had received, since the very beginning.
        epoch, seed: What the loader was opened with.
        position: Where every operator goes on; see ``_engine/position.py``.
        rows: Rows that operators held back, by their ids.
        weights: Weights of mixtures that were changed while running; see ``_engine/weight_changes.py``.
        caches: In which repetition the rows of caches were read first.
        pipeline: Fingerprint of plan and shard list.
        stream: Hash of the rows received; see ``metrics/stream_hash.py``.
        steering: What was left out.
        row_checks: Checksums of the rows, where they are known already; not saved.
    """

    elements: int
    epoch: int
    seed: int
    position: Any
    rows: Any
    weights: Any = None
    caches: Any = None
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] | None = None
    steering: Mapping[str, Any] | None = None
    version: int = VERSION
    row_checks: Sequence[int] | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the state as a new dict of plain data."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {**values, CHECK: checksum_of_state(values, self.row_checks)}

    @classmethod
    def of(cls, state: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Self | None:
        """Return what a dict holds that :meth:`as_dict` made, or those of all ranks; None for None.

        Raises:
            StateMismatchError: It is something else or damaged, or the ranks stand at different places.
        """
        if state is None:
            return None
        if isinstance(state, (list, tuple)):
            return cls._of_ranks([cls._of_one(each) for each in state])
        return cls._of_one(cast("Mapping[str, Any]", state))

    @classmethod
    def _of_ranks(cls, states: Sequence[Self]) -> Self:
        """Return the one state that stands for those of all ranks; its hash is that of all rows together."""
        if not states:
            raise StateMismatchError(["the list of states is empty"])
        first = states[0]
        for other in states[1:]:
            if (other.elements, other.position, other.rows) != (first.elements, first.position, first.rows):
                raise StateMismatchError(
                    [
                        f"the ranks' states are of different steps: one after {first.elements} elements, one after "
                        f"{other.elements}, or of ranks with an order of their own"
                    ]
                )
        return replace(first, stream=joined_streams([state.stream for state in states]))

    @classmethod
    def _of_one(cls, state: Mapping[str, Any]) -> Self:
        if not isinstance(state, Mapping) or state.get("version") != VERSION:
            found = state.get("version") if isinstance(state, Mapping) else type(state).__name__
            raise StateMismatchError([f"a state of version {VERSION} is needed, got {found!r}"])
        values = {name: value for name, value in state.items() if name != CHECK}
        right = checksum_of_state(values)
        if values.keys() != set(_NAMES) or right is None or state.get(CHECK) != right:
            raise StateMismatchError(["the state is damaged: it is not what state_dict() returned"])
        return cls(**values)


_NAMES = tuple(part.name for part in fields(Saved) if part.name != "row_checks")


def joined_streams(streams: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the hash of several ranks' rows together; None unless every rank's is known, each once."""
    known = [stream for stream in streams if stream is not None]
    if len(known) < len(streams) or {stream["share"] for stream in known} != set(range(known[0]["shares"])):
        return None
    by_share = {stream["share"]: stream for stream in known}
    whole = combine_hashes([stream["hash"] for stream in by_share.values()])
    rows = sum(stream["rows"] for stream in by_share.values())
    return {"hash": whole, "rows": rows, "next_index": rows, "share": 0, "shares": 1}
