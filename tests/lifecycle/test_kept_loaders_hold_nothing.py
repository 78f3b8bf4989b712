"""A loader that has ended, or its error, may be kept, as a notebook does: it holds no rows, and goes when let go."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
from leaks import leaves_nothing
from pipelines import OTHER_STAGES, STAGES
from test_a_stage_fails import AFTER, COUNT, FAILING, OwnError

from aiostream_data import Dataset, Loader
from aiostream_data._engine.stages.caching import cache

NOT_ON_DEVICES = {**STAGES, **OTHER_STAGES}


def _charged(loader: Loader[Any]) -> int:
    """Return the bytes that the ended loader is still charged with, without garbage and complete caches.

    A small data set may be read to its end before three elements were taken. Its cache is the data set's then.
    """
    gc.collect()
    budget = loader._engine.resources.budget
    return budget.used - sum(kept.held.nbytes for kept in cache._complete.values() if kept.held.ledger is budget)


def _error_of(loader: Loader[Any]) -> OwnError:
    with pytest.raises(OwnError) as caught:
        for _ in loader:
            pass
    loader.close()  # ends with the loader's thread, which may hold the last rows until then
    return caught.value


@pytest.mark.parametrize("stage", NOT_ON_DEVICES)
def test_a_closed_loader_holds_no_rows(stage: str, shards: list[str]) -> None:
    for after in (0, 3):
        loader = NOT_ON_DEVICES[stage](shards).open()
        with loader:
            for _ in itertools.islice(loader, after):
                pass
        assert _charged(loader) == 0
        assert loader.state_dict() is not None  # which is why it may be kept


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("stage", FAILING)
def test_the_error_of_a_loader_holds_none_of_its_rows(stage: str, after: str) -> None:
    loader = AFTER[after](FAILING[stage](COUNT // 2)).open()
    error = _error_of(loader)
    assert _charged(loader) == 0
    assert error.__traceback__ is not None


@pytest.mark.parametrize("stage", FAILING)
def test_a_loader_that_failed_is_collected(stage: str) -> None:
    with leaves_nothing():
        loader = FAILING[stage](COUNT // 2).open()
        _error_of(loader)
        gone = weakref.ref(loader)
        del loader
        gc.collect()
        assert gone() is None


def test_an_error_that_is_kept_keeps_the_variables_of_the_users_function() -> None:
    def function(value: int) -> int:
        half = value / 2
        raise OwnError(int(half), where="function")

    error = _error_of(Dataset.range(COUNT).map(function).open())
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback is not None
    assert traceback.tb_frame.f_locals["half"] == 0.0
