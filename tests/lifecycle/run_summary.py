"""Lines that tests print at the end of a run, whether they passed or not."""

from __future__ import annotations

import pytest

LINES = pytest.StashKey[list[str]]()
"""In the stash of the run's configuration."""


def add_line(config: pytest.Config, line: str) -> None:
    """Have ``line`` printed at the end."""
    config.stash.setdefault(LINES, []).append(line)
