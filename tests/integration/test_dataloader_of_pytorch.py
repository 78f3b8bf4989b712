"""A data set inside of PyTorch's DataLoader, where PyTorch is installed: each element once, however workers start."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import ForkedPipelineError, NotPicklableError

data: Any = pytest.importorskip("torch.utils.data")
pytestmark = [
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # fork beside threads, from 3.12 on
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # of JAX, where another test has imported it
    pytest.mark.filterwarnings("ignore:'set_vital':UserWarning"),  # of torchdata
    pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning"),
]

ROWS = 50


class Opened(data.IterableDataset):  # type: ignore[misc, name-defined, unused-ignore]
    """Opens a data set in each worker."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.dataset, self.options = dataset, options

    def __iter__(self) -> Iterator[Any]:
        with self.dataset.open(**self.options) as loader:
            yield from loader


class Iterated(Opened):
    """Iterates a data set in each worker."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


class Resumed(Opened):
    """Takes up each worker's own state, as torchdata's StatefulDataLoader asks for."""

    def __iter__(self) -> Iterator[Any]:
        self.loader = self.dataset.open(**self.options)
        return iter(self.loader)

    def state_dict(self) -> Any:
        return self.loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.options = {"state": state}


def row(x: int) -> Any:
    return {"n": int(x), "x": np.full(2, x, np.float32)}


BATCHES: Any = asd.Dataset.range(ROWS).shuffle(20).map(row).batch(8)
STARTS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "one": {"num_workers": 1},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "fork, staying": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
    "spawn, staying": {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True},
}


def numbers(loader: Any) -> list[int]:
    return [n for batch in loader for n in np.atleast_1d(batch["n"]).tolist()]


@pytest.mark.parametrize("how", [Opened, Iterated])
@pytest.mark.parametrize("start", STARTS)
def test_every_row_comes_once_in_every_epoch(start: str, how: type[Opened]) -> None:
    loader = data.DataLoader(how(BATCHES), batch_size=None, **STARTS[start])
    epochs = [numbers(loader) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 2
    if not (how is Opened and "staying" in start):  # whose seed PyTorch draws once
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("start", STARTS)
def test_elements_come_in_the_order_of_one_process(start: str) -> None:
    with BATCHES.open(seed=3) as loader:
        wanted = [batch["n"].tolist() for batch in loader]
    loader = data.DataLoader(Opened(BATCHES, seed=3), batch_size=None, **STARTS[start])
    assert [batch["n"].tolist() for batch in loader] == wanted


@pytest.mark.parametrize("start", ["no workers", "fork"])
def test_a_dataloader_that_makes_the_batches_has_every_row_once(start: str) -> None:
    rows = asd.Dataset.range(ROWS).shuffle().map(row)
    assert sorted(numbers(data.DataLoader(Iterated(rows), batch_size=8, **STARTS[start]))) == list(range(ROWS))


@pytest.mark.parametrize("start", ["no workers", "fork", "spawn"])
def test_workers_of_two_ranks_have_every_row_once(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        copied = pickle.loads(pickle.dumps(BATCHES))  # a rank has its own, and its own epochs
        found.append(numbers(data.DataLoader(Iterated(copied), batch_size=None, **STARTS[start])))
    assert sorted(chain.from_iterable(found)) == list(range(ROWS))
    assert len(found[0]) == len(found[1])


def test_workers_may_have_processes_of_their_own() -> None:
    for dataset in (BATCHES.in_subprocess(), BATCHES.map(same, executor="process", concurrency=1)):
        loader = data.DataLoader(Opened(dataset, seed=1), batch_size=None, **STARTS["fork"])
        assert sorted(numbers(loader)) == list(range(ROWS))


def same(batch: Any) -> Any:
    return batch


def test_a_dataloader_is_left_early() -> None:
    endless = data.DataLoader(Iterated(BATCHES.repeat()), batch_size=None, **STARTS["fork"])
    batches = list(islice(endless, 9))
    assert len(batches) == 9


def test_a_process_that_has_read_before_forks_workers() -> None:
    assert len(list(BATCHES)) == 7
    with BATCHES.repeat().open() as other:
        next(other)
        loader = data.DataLoader(Opened(BATCHES, seed=1), batch_size=None, **STARTS["fork"])
        assert sorted(numbers(loader)) == list(range(ROWS))


def test_an_open_loader_is_refused_in_workers() -> None:
    class Held(data.IterableDataset):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __iter__(self) -> Iterator[Any]:
            return iter(self.loader)

    with BATCHES.open() as open_loader:
        with pytest.raises(ForkedPipelineError):
            list(data.DataLoader(Held(open_loader), batch_size=None, **STARTS["fork"]))
        with pytest.raises(NotPicklableError, match="pickle its Dataset"):
            list(data.DataLoader(Opened(open_loader), batch_size=None, **STARTS["spawn"]))


def test_a_data_set_with_indices_reads_everything_in_each_call() -> None:
    class Indexed(data.Dataset):  # type: ignore[misc, name-defined, unused-ignore]
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            return len(list(asd.Dataset.range(ROWS))) * (index + 1)

    loader = data.DataLoader(Indexed(), batch_size=None, **STARTS["fork"])
    assert list(loader) == [ROWS * number for number in range(1, 7)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 1, 4, 7])
def test_workers_go_on_from_the_states_that_torchdata_keeps(workers: int, taken: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    how = {"batch_size": None, "num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    whole = [batch["n"].tolist() for batch in stateful(Resumed(BATCHES, seed=3), **how)]
    loader = stateful(Resumed(BATCHES, seed=3), **how)
    first = [batch["n"].tolist() for batch in islice(loader, taken)]
    state = loader.state_dict()
    again = stateful(Resumed(BATCHES, seed=3), **how)
    again.load_state_dict(state)
    assert first + [batch["n"].tolist() for batch in again] == whole
