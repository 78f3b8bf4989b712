"""Keep what a part has found so far in a file, so that nothing is lost when the part is ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Recorder:
    """The findings of one part, and the seconds that it may still take.

    Attributes:
        found: What was put so far.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._until = time.monotonic() + seconds
        self.found: dict[str, Any] = {}

    def put(self, **named: Any) -> None:
        """Add findings, or replace those of the same name; they are in the file when this returns."""
        self.found.update(named)
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self.found, indent=1) + "\n")
        os.replace(beside, self._path)

    @property
    def left_s(self) -> float:
        """Seconds left; negative when the part has overrun."""
        return self._until - time.monotonic()
