"""Whether ranks of another number make the same global batches as those that saved a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.plan.fingerprint import Fingerprint
from aiostream_data.plan.stored import stored


def keeps_global_batch(old: Mapping[str, Any], new: Fingerprint) -> bool:
    """Tell whether all ranks together put as many rows into a batch, though each of them puts another number.

    Args:
        old: What a state keeps of its fingerprint.
        new: Of the plan that it is opened with.
    """
    then, now = _global_batch(old), _global_batch(stored(new))
    return then is not None and then == now


def _global_batch(fingerprint: Mapping[str, Any]) -> int | None:
    plan, world_size = fingerprint.get("plan"), fingerprint.get("world_size")
    if not isinstance(plan, list) or not isinstance(world_size, int):
        return None
    sizes = [entry.get("args", {}).get("batch_size", "") for entry in plan if _is_batch(entry)]
    return int(sizes[-1]) * world_size if sizes and str(sizes[-1]).isdecimal() else None


def _is_batch(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("op") == "batch" and isinstance(entry.get("args", {}), dict)
