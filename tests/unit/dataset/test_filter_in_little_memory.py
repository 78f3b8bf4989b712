"""A filter whose hops keep no row ends within a memory limit that the rows it reads fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiostream_data import AUTO, Dataset
from aiostream_data.plan.base import Concurrency


def is_rare(line: str) -> bool:
    return line.endswith("99")


def is_never(line: str) -> bool:
    return False


@pytest.mark.timeout(20)
@pytest.mark.filterwarnings("ignore:cannot limit memory use:RuntimeWarning")
@pytest.mark.parametrize("memory_limit", ["16KB", "32KB", "48KB"])
@pytest.mark.parametrize("concurrency", [AUTO, 2])
def test_a_filter_goes_on_where_its_input_fills_the_limit(
    tmp_path: Path, memory_limit: str, concurrency: Concurrency
) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    lines = Dataset.from_text(tmp_path / "lines.txt")
    for predicate, kept in ((is_rare, 50), (is_never, 0)):
        with lines.filter(predicate, concurrency=concurrency).open(memory_limit=memory_limit) as loader:
            assert sum(1 for _ in loader) == kept


@pytest.mark.timeout(20)
@pytest.mark.filterwarnings("ignore:cannot limit memory use:RuntimeWarning")
@pytest.mark.parametrize("memory_limit", ["64KB", "256KB", "1GB"])
def test_a_repetition_that_ends_with_an_empty_turn_leaves_the_next_turn_unread(
    tmp_path: Path, memory_limit: str
) -> None:
    for file in range(3):
        (tmp_path / f"{file}.txt").write_text("".join(f"line {number}\n" for number in range(7)))
    nothing = Dataset.from_text(str(tmp_path / "*.txt"), cycle_length=4).filter(is_never).repeat().take(17)
    with nothing.open(memory_limit=memory_limit) as loader:
        assert list(loader) == []
