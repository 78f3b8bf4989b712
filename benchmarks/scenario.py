"""What a scenario is: the work, who takes part, and what must come out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workload import Tally, Workload

OURS = "aiostream_data"
NATIVE = ("numpy", "uvloop")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: Row of the table.
        module: ``benchmarks.compare.<module>`` with a function ``batches(workload, variant)``.
        how: Its configuration in a few words.
        packages: Distributions whose versions are noted.
        variant: Handed to ``batches`` where one module serves several rows.
        same_values: It must give the expected values exactly. Else it does the work in a way of its own that
            rounds differently, and only what is timed is held against what is expected.
        is_part: It does a part of the work only, as a ceiling may: what it gives is held against nothing.
    """

    name: str
    module: str
    how: str
    packages: tuple[str, ...] = ()
    variant: str | None = None
    same_values: bool = True
    is_part: bool = False


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One table.

    Attributes:
        rows: How many elements go through in a pass.
        warm_up_rows: How many go through before anything is timed; at least a file.
        work: Gives the workload for a number of rows, with files below a folder; writes them if need be.
        expected: Yields the batches that a workload must give, made without any loader.
        tally: The timed consumer, the same for all.
        check: What the warm-up's output is held against.
        from_first_batch: The clocks start when the first batch is there, and building the pipeline is not in them.
        total: What the tally of a whole pass must be, where making the expected batches would take long.
        serving: What has to run while it is measured: ``with serving(data):`` around all of it.
        contenders: In the order they take turns.
    """

    key: str
    title: str
    unit: str
    rows: int
    warm_up_rows: int
    work: Callable[[int, Path], Workload]
    expected: Callable[[Workload], Iterator[Any]]
    tally: Callable[[Iterable[Any]], Tally]
    check: Callable[[Iterable[Any]], Tally]
    contenders: tuple[Contender, ...]
    from_first_batch: bool = False
    total: Callable[[Workload], Tally] | None = None
    serving: Callable[[Path], AbstractContextManager[object]] = nullcontext

    def expected_tally(self, workload: Workload) -> Tally:
        """Return what the timed consumer must have counted at the end."""
        return self.total(workload) if self.total is not None else self.tally(self.expected(workload))
