"""Validate a loader's saved state: types, ranges and consistency. This module does not validate plan positions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from aiostream_data._engine.resume.shard_numbers import numbers_in
from aiostream_data.plan.stored import MAX_PLAN_NBYTES
from aiostream_data.state_fields import MAX_COUNT, Part, seed_in

MAX_SHARES: Final = 1 << 24
"""Maximum number of ranks."""

_HASH: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_MAX_MARKS: Final = 1 << 12


def check_saved(state: Part, names: Sequence[str]) -> None:
    """Check the fields of a state that can be checked without a plan.

    Args:
        names: Required keys of a state.

    Raises:
        DamagedStateError: A value is missing, has the wrong type, or is out of range.
    """
    fields = state.fields(*names)
    fields["elements"].integer()
    fields["epoch"].integer()
    seed_in(fields["seed"])
    _check_pipeline(fields["pipeline"])
    if fields["stream"].value is not None:
        _check_stream(fields["stream"])
    if fields["caches"].value is not None:
        _check_caches(fields["caches"])
    if fields["weights"].value is not None:
        _check_weights(fields["weights"])
    if fields["steering"].value is not None:
        _check_steering(fields["steering"])


def check_table(state: Part) -> None:
    """Check that the row table is a list of lists.

    Call this function before computing the checksum, which is slow for malformed tables.
    """
    table = state.entry("rows")
    if table.value is not None:
        rows = table.fields("spaces", "rows")["rows"]
        if not all(type(entry) is list for entry in rows.listed()):
            raise rows.refused("must be a list of lists")


def _check_stream(stream: Part) -> None:
    fields = stream.fields("hash", "rows", "next_index", "share", "shares", optional=("policy", "worker"))
    if not _HASH.fullmatch(fields["hash"].text()):
        raise fields["hash"].refused("must be 32 hexadecimal digits in lower case")
    shares = fields["shares"].integer(1, MAX_SHARES)
    share = fields["share"].integer(0, shares - 1)
    next_index = fields["next_index"].integer(share)
    fields["rows"].integer(0, next_index)
    if "policy" in fields and fields["policy"].value not in ("row", "file"):
        raise fields["policy"].refused("must be 'row' or 'file'")
    if "worker" in fields:
        worker, workers = fields["worker"].items(2, 2)
        worker.integer(0, workers.integer(1, MAX_SHARES) - 1)


def _check_pipeline(pipeline: Part) -> None:
    fields = pipeline.fields("plan", "world_size", optional=("shards", "keys"))
    fields["world_size"].integer(1, MAX_SHARES)
    if len(json.dumps(fields["plan"].value)) > 2 * MAX_PLAN_NBYTES:
        raise fields["plan"].refused(f"must take at most {2 * MAX_PLAN_NBYTES} bytes")
    if "keys" in fields:
        keys_in(fields["keys"])
    if "shards" not in fields:
        return
    for source in fields["shards"].fields(*_names_in(fields["shards"])).values():
        shards = source.fields("count", "digest", optional=("versions", "by", "marks", "version_marks", "numbered"))
        count = shards.pop("count").integer()
        if "numbered" in shards:
            numbers_in(shards.pop("numbered"), count)
        for text in shards.values():
            text.text(_MAX_MARKS)


def keys_in(part: Part) -> list[int]:
    """Return the node numbers of a plan."""
    return [key.integer() for key in part.items(1, _MAX_MARKS)]


def _names_in(part: Part) -> list[str]:
    if not isinstance(part.value, dict) or not all(isinstance(name, str) for name in part.value):
        raise part.refused("must be a dict")
    return list(part.value)


def _check_caches(caches: Part) -> None:
    for cache in caches.items():
        number, epoch = cache.items(2, 2)
        number.integer()
        epoch.epoch()


def _check_weights(weights: Part) -> None:
    fields = weights.fields("runs", "last")
    for run in fields["runs"].items():
        mixture, epoch, changes = run.items(3, 3)
        mixture.integer()
        epoch.epoch()
        first = 0
        for change in changes.items(1):
            first = _check_change(change, first)
    for last in fields["last"].items(1):
        mixture, change, first_epoch = last.items(3, 3)
        mixture.integer()
        _check_change(change, 0)
        first_epoch.epoch()


def _check_change(change: Part, first: int) -> int:
    """Check one change of mixture weights. Return the first row that the next change may use."""
    row, weights, planned = change.items(3, 3)
    number = row.integer(first)
    inputs = len(weights.items(1))
    for vector in (weights, planned):
        if sum(weight.weight() for weight in vector.items(inputs, inputs)) == 0:
            raise vector.refused("must contain a weight above 0")
    return number + 1


def _check_steering(steering: Part) -> None:
    fields = steering.fields("skip", "rows", "shards")
    for span in fields["skip"].items():
        start, stop = span.items(2, 2)
        stop.integer(start.integer(0, MAX_COUNT - 1) + 1)
    for row in fields["rows"].items():
        url, index = row.items(2, 2)
        url.text(MAX_COUNT)
        index.integer()
    for url in fields["shards"].items():
        url.text(MAX_COUNT)
