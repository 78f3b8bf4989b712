"""Format of a loader's saved state: its fields, checksum and parsing.

A saved state contains a checksum that detects damaged files. The checksum does not protect against manipulation,
because an attacker can compute a new checksum. Therefore the loader validates every value of a saved state. This module
checks the values of a state that can be checked without a plan; ``_engine/state_against_plan.py`` checks the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from aiostream_data.errors import DamagedStateError, StateMismatchError
from aiostream_data.loading.same_step import check_same_step
from aiostream_data.loading.state_validation import check_saved, check_table
from aiostream_data.metrics.stream_hash import combine_hashes
from aiostream_data.state_checksum import checksum_of_state
from aiostream_data.state_fields import Part, brief, naming

VERSION = 2
CHECK = "check"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Saved state of a loader, as JSON-compatible data.

    Attributes:
        elements: Number of elements that the consumer received since the start of the stream.
        epoch, seed: Epoch and seed that the loader was opened with.
        position: Position of every operator; see ``_engine/resume/position.py``.
        rows: Ids of the rows that were in buffers of operators.
        weights: Mixture weights changed during the run; see ``_engine/resume/weight_changes.py``.
        caches: For each cache, the number of the repetition that filled the cache.
        pipeline: Fingerprint of plan and shard list.
        stream: Hash of the received rows; see ``metrics/stream_hash.py``.
        steering: Skipped elements and blocked rows.
        version: Version of the state format.
        row_checks: Precomputed checksums of ``rows``, or None. They are not saved.
        of_ranks: The states of all ranks, if this state was merged from a list of states; not saved.
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
        """Approximate number of received elements plus received rows.

        The number is too low for ranks that continued the work of other ranks.
        """
        return self.elements + (0 if self.stream is None else self.stream["next_index"] - self.stream["share"])

    def as_dict(self) -> dict[str, Any]:
        """Serialize the state to a new dict with its checksum."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {**values, CHECK: checksum_of_state(values, self.row_checks)}

    @classmethod
    def of(cls, state: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Self | None:
        """Parse a dict from :meth:`as_dict`, or a list with one dict per rank. Return None for None.

        Raises:
            StateMismatchError: The value is not a state, the state is damaged, or the ranks' states are from different
                steps.
        """
        if state is None:
            return None
        if isinstance(state, (list, tuple)):
            return cls._of_ranks(state)
        return cls._of_one(state)

    @classmethod
    def _of_ranks(cls, states: Sequence[object]) -> Self:
        """Merge the states of all ranks into one state.

        The stream hash of the merged state includes the rows of all ranks.
        """
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
            raise StateMismatchError([f"a state must be a dict, got {type(state).__name__}"], cure, head=_NO_STATE)
        if "version" not in state:
            raise _no_state(state)
        if state["version"] != VERSION:
            found = brief(state["version"])
            raise StateMismatchError([f"the version of a state must be {VERSION}, got {found}"], head=_OTHER_VERSION)
        values = {name: value for name, value in state.items() if name != CHECK}
        check_table(Part(values, "state"))
        right = checksum_of_state(values)
        if right is None or state.get(CHECK) != right:
            raise DamagedStateError("state", "was changed after state_dict() returned it: its checksum does not match")
        check_saved(Part(values, "state"), _NAMES)
        return cls(**values)


def _no_state(found: Mapping[Any, Any]) -> StateMismatchError:
    """Return the error for a dict that is not a loader state, such as a checkpoint that contains a state."""
    keys = [brief(key) for key in found]
    inside = [brief(key) for key, value in found.items() if isinstance(value, Mapping) and "version" in value]
    cure = f"Pass the state stored under the key {inside[0]}." if inside else _FROM
    told = ", ".join([*keys[:_MAX_KEYS], *(["..."] if len(keys) > _MAX_KEYS else [])])
    what = f"its keys are {told}" if keys else "it is an empty dict"
    return StateMismatchError([what], cure, head=_NO_STATE)


_NO_STATE = "cannot resume: the given state is not the state of a loader:"
_OTHER_VERSION = "cannot resume: the state was saved by another version of aiostream_data:"
_FROM = "Pass the result of state_dict() of a loader, or None to start from the beginning."
_MAX_KEYS = 8
_AS_TEXT = "Pass json.loads(state) if the state was saved as JSON."

_NAMES = tuple(part.name for part in fields(Saved) if part.name not in ("row_checks", "of_ranks"))


def joined_streams(streams: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Combine the stream hashes of all ranks. Return None unless exactly one hash is known for each rank.

    The hash of a DataLoader worker cannot be combined: the positions of its rows depend on the other workers.
    """
    known = [stream for stream in streams if stream is not None and "worker" not in stream]
    shares = {stream["share"] for stream in known}
    if len(known) < len(streams) or len(shares) != known[0]["shares"] or max(shares) != len(shares) - 1:
        return None
    by_share = {stream["share"]: stream for stream in known}
    whole = combine_hashes([stream["hash"] for stream in by_share.values()])
    rows = sum(stream["rows"] for stream in by_share.values())
    return {"hash": whole, "rows": rows, "next_index": rows, "share": 0, "shares": 1}
