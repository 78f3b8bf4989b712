"""What all tests of stores need."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _garbage_is_looked_for_among_what_the_test_makes() -> None:
    """Leave what was there before out of the collection that ends every case: clients of stores bring a lot of it."""
    gc.freeze()
