"""A loader has threads and connections, which no other process can be given: its data set travels instead."""

from __future__ import annotations

import copy
import pickle

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset


def test_pickling_or_copying_a_loader_says_what_travels_instead_and_leaves_it_as_it_was() -> None:
    with leaves_nothing(), Dataset.range(3).open() as loader:
        assert next(iter(loader)) == 0
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="Pickle its Dataset"):
                attempt(loader)
        assert list(loader) == [1, 2]


def test_its_data_set_and_its_state_travel() -> None:
    dataset = Dataset.range(3)
    with dataset.open() as loader:
        next(iter(loader))
        parcel = pickle.dumps((dataset, loader.state_dict()))
    elsewhere, state = pickle.loads(parcel)
    with elsewhere.open(state) as loader:
        assert list(loader) == [1, 2]
