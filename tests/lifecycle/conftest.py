"""Shards that the lifecycle tests read."""

from __future__ import annotations

import pytest
from pipelines import write_shards


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four TFRecord files on this machine."""
    return write_shards(tmp_path_factory.mktemp("shards"))
