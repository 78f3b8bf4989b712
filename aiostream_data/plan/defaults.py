"""Default values of arguments whose nodes are imported only when they are used."""

from __future__ import annotations

from typing import Final

SCHEDULE_EVERY: Final = 1000
"""Default number of rows between two calls of the weight function of ``sample_from()``."""

OPEN_BINS: Final = 16
"""Default number of rows that ``pack()`` fills concurrently."""
