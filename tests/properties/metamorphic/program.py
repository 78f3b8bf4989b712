"""Evaluate drawn programs, and print them such that they run elsewhere.

Upper case names in a program say how it is run, and change no row: see :class:`Places`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np
import plan_functions

import aiostream_data as asd
from aiostream_data import Dataset
from metamorphic import functions
from metamorphic.files import catalog, database, pattern, place, snapshot
from metamorphic.hub import hub

NAMES: Mapping[str, Any] = {
    **{name: value for name, value in vars(plan_functions).items() if not name.startswith("_")},
    **{name: value for name, value in vars(functions).items() if not name.startswith("_")},
    "AUTO": asd.AUTO,
    "Dataset": Dataset,
    "asd": asd,
    "np": np,
    "catalog": catalog,
    "database": database,
    "hub": hub,
    "pattern": pattern,
    "place": place,
    "snapshot": snapshot,
}
"""What programs use, besides what :class:`Places` defines."""


class Short:
    """A dataclass that prints as the call that makes it, without the arguments that are not needed."""

    def __repr__(self) -> str:
        parts = []
        for one in fields(self):  # type: ignore[arg-type]
            usual = one.default if one.default_factory is MISSING else one.default_factory()
            value = getattr(self, one.name)
            if value != usual:
                parts.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Places(Short):
    """Where the parts of a program run.

    Attributes:
        how: ``HOW``, arguments of map() and filter().
        awaited: ``AWAITED``, arguments of map() with a coroutine function.
        read: ``READ``, arguments of sources of files.
        spill: ``SPILL``, arguments of shuffle() and unique().
        workers: Processes of in_subprocess() where the program says ``HOST``; 0 for none.
        ahead: Elements of prefetch() where the program says ``AHEAD``; 0 for none.
    """

    how: Mapping[str, Any] = field(default_factory=dict)
    awaited: Mapping[str, Any] = field(default_factory=dict)
    read: Mapping[str, Any] = field(default_factory=dict)
    spill: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 0
    ahead: int = 0

    def build(self, code: str) -> Dataset[Any]:
        """Return the data set of a program."""
        names = {**NAMES, "HOW": self.how, "AWAITED": self.awaited, "READ": self.read, "SPILL": self.spill}
        dataset: Dataset[Any] = eval(code, {**names, "HOST": self._host, "AHEAD": self._ahead})
        return dataset

    def _host(self, dataset: Dataset[Any]) -> Dataset[Any]:
        return dataset.in_subprocess(self.workers) if self.workers else dataset

    def _ahead(self, dataset: Dataset[Any]) -> Dataset[Any]:
        return dataset.prefetch(self.ahead) if self.ahead else dataset


NOWHERE = Places()
"""Everything in its usual place."""
