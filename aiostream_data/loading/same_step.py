"""Whether states of several ranks stand at the same place, whatever each rank knows of where records begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiostream_data.loading.saved import Saved


def same_step(one: Saved, other: Saved) -> bool:
    """Return True if two states are of the same step of the same order.

    A rank learns the offsets of records from the ranges that it reads, which are of other sizes on another rank. A
    record's number says where it is; its offset only saves reading what lies before it.
    """
    return _place(one) == _place(other)


def _place(saved: Saved) -> tuple[Any, ...]:
    rows = saved.rows or {}
    spaces = [space[:4] for space in rows.get("spaces", ())]
    return saved.elements, _without_offsets(saved.position), spaces, rows.get("rows")


def _without_offsets(position: Any) -> Any:
    """Return a position, which nobody has checked yet, without what a rank knows of the files that are open."""
    if isinstance(position, list):
        return [_without_offsets(part) for part in position]
    if not isinstance(position, dict):
        return position
    streams = position.get("streams")
    if position.get("op") == "files" and isinstance(streams, list):
        return {**position, "streams": [stream[:1] if isinstance(stream, list) else stream for stream in streams]}
    return {key: _without_offsets(part) for key, part in position.items()}
