"""A loader's state as it is saved: what is in it, and reading it back.

A state ends with a checksum over its contents, which finds damaged files. A checksum is no proof: whoever edits a
state can compute another one. So every value is checked as well. What can be checked without a plan is checked here,
the rest in ``_engine/state_schema.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from aiostream_data.errors import DamagedStateError, StateMismatchError
from aiostream_data.loading.same_step import check_same_step
from aiostream_data.loading.saved_schema import check_saved, check_table
from aiostream_data.metrics.stream_hash import combine_hashes
from aiostream_data.state_check import checksum_of_state
from aiostream_data.state_parts import Part, brief, naming

VERSION = 2
CHECK = "check"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where a loader stood. Plain data all through: it goes through JSON unchanged.

    Attributes:
        elements: Elements that the consumer had received, since the very beginning.
        epoch, seed: What the loader was opened with.
        position: Where every operator goes on; see ``_engine/resume/position.py``.
        rows: Rows that operators held back, by their ids.
        weights: Weights of mixtures that were changed while running; see ``_engine/resume/weight_changes.py``.
        caches: In which repetition the rows of caches were read first.
        pipeline: Fingerprint of plan and shard list.
        stream: Hash of the rows received; see ``metrics/stream_hash.py``.
        steering: What was left out.
        row_checks: Checksums of the rows, where they are known already; not saved.
        of_ranks: The states of all ranks, where this one stands for a list of them; not saved.
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
    of_ranks: Sequence[Saved] = field(default=(), compare=False)

    @property
    def received(self) -> int:
        """Elements and rows that the consumer had received, roughly: ranks that went on for others count less."""
        return self.elements + (0 if self.stream is None else self.stream["next_index"] - self.stream["share"])

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
            return cls._of_ranks(state)
        return cls._of_one(state)

    @classmethod
    def _of_ranks(cls, states: Sequence[object]) -> Self:
        """Return the one state that stands for those of all ranks; its hash is that of all rows together."""
        if not states:
            raise StateMismatchError(["the list of states is empty"])
        found = []
        for number, state in enumerate(states):
            with naming(f"state[{number}]"):
                found.append(cls._of_one(state))
        check_same_step(found)
        return replace(found[0], stream=joined_streams([each.stream for each in found]), of_ranks=tuple(found))

    @classmethod
    def _of_one(cls, state: object) -> Self:
        if not isinstance(state, Mapping):
            cure = _AS_TEXT if isinstance(state, (str, bytes, bytearray, memoryview)) else _FROM
            raise StateMismatchError([f"a state is a dict, got {type(state).__name__}"], cure, head=_NO_STATE)
        if "version" not in state:
            raise _no_state(state)
        if state["version"] != VERSION:
            found = brief(state["version"])
            raise StateMismatchError([f"a state of version {VERSION} is needed, got {found}"], head=_OTHER_VERSION)
        values = {name: value for name, value in state.items() if name != CHECK}
        check_table(Part(values, "state"))
        right = checksum_of_state(values)
        if right is None or state.get(CHECK) != right:
            raise DamagedStateError("state", "is not what state_dict() returned: its checksum does not hold")
        check_saved(Part(values, "state"), _NAMES)
        return cls(**values)


def _no_state(found: Mapping[Any, Any]) -> StateMismatchError:
    """Return the error for a dict that is something else, such as a checkpoint with a state in it."""
    keys = [brief(key) for key in found]
    inside = [brief(key) for key, value in found.items() if isinstance(value, Mapping) and "version" in value]
    cure = f"Pass the state that it holds under {inside[0]}." if inside else _FROM
    told = ", ".join([*keys[:_MAX_KEYS], *(["..."] if len(keys) > _MAX_KEYS else [])])
    what = f"it has the keys {told}" if keys else "it is an empty dict"
    return StateMismatchError([what], cure, head=_NO_STATE)


_NO_STATE = "cannot resume: this is no state of a loader:"
_OTHER_VERSION = "cannot resume: the state was saved by another version of aiostream_data:"
_FROM = "Pass what state_dict() of a loader returned, or None to begin at the beginning."
_MAX_KEYS = 8
_AS_TEXT = "Pass json.loads(state), if the state was saved as JSON."

_NAMES = tuple(part.name for part in fields(Saved) if part.name not in ("row_checks", "of_ranks"))


def joined_streams(streams: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the hash of several ranks' rows together; None unless every rank's is known, each once.

    That of a DataLoader's worker is not known: where its rows stand in the stream of its rank depends on the others'.
    """
    known = [stream for stream in streams if stream is not None and "worker" not in stream]
    shares = {stream["share"] for stream in known}
    if len(known) < len(streams) or len(shares) != known[0]["shares"] or max(shares) != len(shares) - 1:
        return None
    by_share = {stream["share"]: stream for stream in known}
    whole = combine_hashes([stream["hash"] for stream in by_share.values()])
    rows = sum(stream["rows"] for stream in by_share.values())
    return {"hash": whole, "rows": rows, "next_index": rows, "share": 0, "shares": 1}
