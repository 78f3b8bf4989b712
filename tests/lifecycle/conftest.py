"""Shards that the lifecycle tests read, and lines that they add to the end of a run."""

from __future__ import annotations

from typing import Any

import pytest
from pipelines import write_shards
from run_summary import LINES


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four TFRecord files on this machine."""
    return write_shards(tmp_path_factory.mktemp("shards"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what tests have measured."""
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(line)
