"""Stores of fsspec: what is not theirs to know is refused, never dropped without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from aiostream_data.errors import PlanError
from aiostream_data.storage.stores import StoreSet


class PatientFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Knows one of our options by its own name."""

    protocol = "patient"

    def __init__(self, read_timeout: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.read_timeout = read_timeout


@pytest.fixture(autouse=True)
def _file_systems() -> Iterator[None]:
    fsspec.register_implementation("plain", MemoryFileSystem, clobber=True)
    fsspec.register_implementation("patient", PatientFileSystem, clobber=True)
    MemoryFileSystem.store.clear()
    for name in ("plain://x", "patient://x"):  # it strips no scheme but its own
        MemoryFileSystem().pipe_file(name, b"")
    yield
    MemoryFileSystem.store.clear()


def size(url: str, **options: Any) -> int | None:
    async def main() -> int | None:
        stores = StoreSet(options, asyncio.to_thread)
        try:
            return (await stores.info(url)).nbytes
        finally:
            await stores.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["connect_timeout", "first_byte_timeout", "read_timeout", "total_timeout", "verify"])
def test_an_option_of_other_stores_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"plain:// .*does not support the option {name};.*'s3://'"):
        size("plain://x", **{name: 1})


def test_an_option_under_the_scheme_of_another_store_is_none_of_its_business() -> None:
    assert size("plain://x", **{"s3://": {"read_timeout": 1, "reader": "plain"}}) == 0


def test_an_option_that_the_file_system_knows_is_passed_on() -> None:
    assert size("patient://x", read_timeout=3) == 0
    with pytest.raises(PlanError, match="connect_timeout"):
        size("patient://x", connect_timeout=3)


@pytest.mark.parametrize("reader", ["auto", "library"])
def test_the_library_is_what_reads_it_anyway(reader: str) -> None:
    assert size("plain://x", reader=reader) == 0


def test_hedge_is_a_choice_between_two() -> None:
    assert size("plain://x", hedge=False) == 0
    with pytest.raises(PlanError, match="hedge must be True or False, got 'no'"):
        size("plain://x", hedge="no")


def test_gets_of_our_own_are_refused() -> None:
    with pytest.raises(PlanError, match="does not support reader='plain'"):
        size("plain://x", reader="plain")
