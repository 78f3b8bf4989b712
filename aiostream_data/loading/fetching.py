"""Make one row again from its origin."""

from __future__ import annotations

from typing import Any

from aiostream_data._engine.bridge import Ending
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.origin_of import node_of_rows
from aiostream_data.plan.base import Node
from aiostream_data.provenance import Origin


def fetch_row(plan: Node, origin: Origin, memory_limit: int) -> Any:
    """Return the row that has this origin, as it went into its batch.

    Raises:
        BaseException: What reading or making it raised.
    """
    node = node_of_rows(plan, int(origin.row.get("batches", 0)))
    options = EngineOptions(memory_limit=memory_limit, root_seed=origin.seed, book=dict(origin.row), fetch=True)
    engine = Engine(node, options)
    try:
        engine.wait_ready()
        item = engine.bridge.get()
        if isinstance(item, Ending):
            raise item.error or RuntimeError("the row could not be made, and nothing says why")
        return item.elements[0]
    finally:
        engine.stop()
        engine.bridge.end(None, discard=True)
