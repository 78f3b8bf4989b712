"""The pages name everything there is. Programs, links and commands on pages are tested in tests/docs."""

from __future__ import annotations

import inspect
from pathlib import Path

from aiostream_data import Dataset, errors

ROOT = Path(__file__).parents[2]


def test_every_error_has_its_line() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    kinds = [name for name, value in vars(errors).items() if inspect.isclass(value) and name.endswith("Error")]
    assert len(kinds) > 20
    assert [name for name in kinds if f"`{name}`" not in page and f".{name}`" not in page] == []


def test_every_operation_of_a_data_set_is_compared_with_tf_data() -> None:
    page = (ROOT / "docs" / "migrate" / "tf_data.md").read_text()
    running = {"open", "debug", "explain", "memory_bound", "plan"}
    names = [name for name, _ in inspect.getmembers(Dataset, callable) if not name.startswith("_")]
    assert "from_tfrecord" in names
    assert [name for name in names if name not in running and f"`{name}" not in page] == []
