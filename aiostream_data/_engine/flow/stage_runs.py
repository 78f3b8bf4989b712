"""The running stages with their inlets and outlets, for reports of what each waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # they know the context that this is a part of
    from aiostream_data._engine.flow.stage import Stage
    from aiostream_data._engine.flow.stage_io import Inlet, Outlet


class StageRun(NamedTuple):
    """A stage between its begin and its end."""

    stage: Stage
    inlets: Sequence[Inlet]
    outlet: Outlet


class StageRuns:
    """All stages that run. Noted on the loop, read from any thread."""

    def __init__(self) -> None:
        self._runs: dict[int, StageRun] = {}

    @contextmanager
    def running(self, stage: Stage, inlets: Sequence[Inlet], outlet: Outlet) -> Iterator[None]:
        """Note that a stage runs while the block does."""
        run = StageRun(stage, inlets, outlet)
        self._runs[id(run)] = run
        try:
            yield
        finally:
            del self._runs[id(run)]

    def __iter__(self) -> Iterator[StageRun]:
        return iter(self._runs.copy().values())
