"""The memory budgets of this process."""

from __future__ import annotations

import gc

from aiostream_data._engine.memory.budget import Budget


def living_budgets() -> set[Budget]:
    return {found for found in gc.get_objects() if type(found) is Budget}
