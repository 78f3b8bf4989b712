"""Registry of running stages with their inlets and outlets, used to report which stages wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # these modules import the run context, which imports this module
    from aiostream_data._engine.flow.stage import Stage
    from aiostream_data._engine.flow.stage_io import Inlet, Outlet


class StageRun(NamedTuple):
    """A running stage with its inlets and its outlet."""

    stage: Stage
    inlets: Sequence[Inlet]
    outlet: Outlet


class StageRuns:
    """Registry of all running stages. The event loop changes this registry; any thread may read it."""

    def __init__(self) -> None:
        self._runs: dict[int, StageRun] = {}

    @contextmanager
    def running(self, stage: Stage, inlets: Sequence[Inlet], outlet: Outlet) -> Iterator[None]:
        """Context manager that registers a stage for the duration of its block."""
        run = StageRun(stage, inlets, outlet)
        self._runs[id(run)] = run
        try:
            yield
        finally:
            del self._runs[id(run)]

    def __iter__(self) -> Iterator[StageRun]:
        return iter(self._runs.copy().values())
