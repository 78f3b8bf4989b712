"""Groups of local files: longer ones for files that are read into separate objects than for one block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groups_or_alone import grouped

from aiostream_data import Dataset
from aiostream_data._engine.sources.group_bytes import SEPARATE_NBYTES
from aiostream_data._engine.sources.small_shards import LOCAL_GROWTH

FILES = 160
FILES_OF_A_BLOCK = 8


@pytest.fixture(autouse=True)
def small_shards_in_groups_or_alone() -> None:
    """Replace the fixture of all tests: these read in groups."""


def from_files(pattern: str) -> Dataset[Any]:
    return Dataset.from_files(pattern).map(lambda file: file["data"])


def from_records(pattern: str) -> Dataset[Any]:
    return Dataset.from_fixed_length(pattern, SEPARATE_NBYTES)


@pytest.mark.parametrize(
    ("make", "most"), [(from_files, LOCAL_GROWTH * FILES_OF_A_BLOCK), (from_records, FILES_OF_A_BLOCK)]
)
def test_only_files_that_are_read_into_separate_objects_form_longer_groups(
    tmp_path: Path, make: Callable[[str], Dataset[Any]], most: int
) -> None:
    contents = [number.to_bytes(4, "little") * (SEPARATE_NBYTES // 4) for number in range(FILES)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:03}").write_bytes(content)
    with grouped(FILES_OF_A_BLOCK * SEPARATE_NBYTES) as sizes, make(f"{tmp_path}/*").open() as loader:
        assert [bytes(row) for row in loader] == contents
    assert max(sizes) == most
