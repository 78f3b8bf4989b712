"""Import every stage of the engine. Importing this module lets a test change constants of all of them."""

from __future__ import annotations

from typing import Any

import aiostream_data._engine.calls.map_coroutine
import aiostream_data._engine.calls.rowwise
import aiostream_data._engine.engine  # noqa: F401
from aiostream_data._engine.compile import STAGES, STEPS

EVERY_STAGE: tuple[type[Any], ...] = (*STAGES.values(), *STEPS.values())
