"""Check the global batch size if the number of ranks has changed since a state was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.plan.fingerprint import Description, Fingerprint

SIZE = "batch_size"
"""Argument of ``batch`` that may change if the number of ranks changes."""


def keeps_global_batch(old: Mapping[str, Any], new: Fingerprint) -> bool:
    """Return True if the global batch size (of all ranks together) is the same as in the saved state.

    Args:
        old: Fingerprint from the saved state.
        new: Fingerprint of the current plan.
    """
    then = _global_batch(_saved_size(old.get("plan")), old.get("world_size"))
    return then is not None and then == _global_batch(last_batch_size(new["plan"]), new["world_size"])


def last_batch_size(plan: Description) -> str | None:
    """Return the batch size of the last ``batch`` of a plan, or None if the plan has no ``batch``."""
    batch = _last_batch(plan)
    return None if batch is None else batch["args"].get(SIZE)


def without_batch_size(plan: Description) -> Description:
    """Return a plan description without the size of the last ``batch``.

    The returned description does not depend on the number of ranks.
    """
    if plan["op"] == "batch":
        return {**plan, "args": {name: text for name, text in plan["args"].items() if name != SIZE}}
    if len(plan["inputs"]) != 1:
        return plan
    return {**plan, "inputs": [without_batch_size(plan["inputs"][0])]}


def _last_batch(plan: Description) -> Description | None:
    while plan["op"] != "batch":
        if len(plan["inputs"]) != 1:
            return None
        plan = plan["inputs"][0]
    return plan


def _saved_size(plan: Any) -> Any:
    if isinstance(plan, dict):
        return plan.get(SIZE)
    sizes = [entry.get("args", {}).get(SIZE) for entry in plan if _is_batch(entry)] if isinstance(plan, list) else []
    return sizes[-1] if sizes else None


def _global_batch(size: Any, world_size: Any) -> int | None:
    return int(size) * world_size if str(size).isdecimal() and isinstance(world_size, int) else None


def _is_batch(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("op") == "batch" and isinstance(entry.get("args", {}), dict)
