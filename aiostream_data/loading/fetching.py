"""Recompute one row from its origin (the file and record that the row was made from)."""

from __future__ import annotations

from typing import Any

from aiostream_data._engine.consumer.bridge import Ending, Parcel
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.resume.element_origins import node_of_rows
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.errors import StateMismatchError
from aiostream_data.loading.state_validation import keys_in
from aiostream_data.plan.base import Node
from aiostream_data.rows.provenance import Origin
from aiostream_data.state_fields import Part


def fetch_row(plan: Node, origin: Origin, memory_limit: int) -> Any:
    """Return the row that has this origin, as the row was before batching.

    Raises:
        BaseException: The row could not be read, or a user function failed.
    """
    node = node_of_rows(plan, int(origin.row.get("batches", 0)))
    row = dict(origin.row)
    keys = keys_in(Part(row.pop("keys"), 'origin.row["keys"]')) if "keys" in row else None
    options = EngineOptions(
        run=RunOptions(memory_limit=memory_limit),
        root_seed=origin.seed,
        book=row,
        fetch=True,
        fetched_from=origin.url,
        keys=keys,
    )
    engine = Engine(node, options)
    try:
        engine.wait_ready()
        item = engine.bridge.get()
        if isinstance(item, Ending):
            raise item.error or RuntimeError(
                "fetch() failed: the engine ended without a row and without an error. Please report this as a bug."
            )
        _check_object(engine, item, origin)
        return item.elements[0]
    finally:
        engine.stop()
        engine.bridge.end(None, discard=True)


def _check_object(engine: Engine, parcel: Parcel, origin: Origin) -> None:
    """Raise an error if the row's object differs from the object in its origin, because the shard list has changed."""
    made_of = parcel.ids[0] if isinstance(parcel.ids, list) else None
    found = engine.state.origins_of(parcel.own_ids.row(0), made_of)[0].url
    if found != origin.url:
        raise StateMismatchError(
            [f"the row was read from {origin.url}, but its row number now belongs to {found}"],
            "Restore the shards that were listed when the row was read.",
        )
