"""Run a part of a drawn plan: from a state, in given places, for some elements."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from aiostream_data import Loader, Origin
from metamorphic.cuts import cut_by
from metamorphic.files import FOLDER, folder
from metamorphic.program import NOWHERE, Places, Short

ELSEWHERE_S = 120.0
"""Seconds for a leg in a new process."""


@dataclass(frozen=True, repr=False)
class Leg(Short):
    """How the rows between two stops are made.

    Attributes:
        take: Elements to receive before the stop; None to go on until the end.
        places: Where the parts of the program run.
        cut: Seed of the sizes of chunks; None for the usual ones.
        memory_limit: For ``open``.
        debug: One element at a time.
        elsewhere: In a new process.
    """

    take: int | None = None
    places: Places = NOWHERE
    cut: int | None = None
    memory_limit: str | None = None
    debug: bool = False
    elsewhere: bool = False

    @property
    def processes(self) -> int:
        """Processes that are started, about."""
        return self.places.workers + 3 * (self.places.how.get("executor") == "process") + self.elsewhere


@dataclass
class Given:
    """What was received.

    Attributes:
        elements: In order.
        origins: Of each element, where its rows came from; None where nobody asked.
        hashes: ``stream_hash`` before the first element and after each.
        state: After the last one, as JSON.
        ended: Nothing is left.
    """

    elements: list[Any] = field(default_factory=list)
    origins: list[list[Any] | None] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    state: str = ""
    ended: bool = False


@dataclass(frozen=True)
class Task:
    """What to run.

    Attributes:
        code: The program.
        options: For ``open``. Seed and epoch are not given again with a state.
        small_rows: See :func:`.cuts.cut_by`.
        told_every: Origins of every so many elements are asked for.
    """

    code: str
    options: Mapping[str, Any]
    small_rows: int | None = None
    told_every: int = 1


def run_leg(task: Task, leg: Leg, state: str | None = None) -> Given:
    """Open a program where ``state`` says and return what it gives.

    Args:
        state: JSON of a state, or of a list of states; None for the beginning.
    """
    if leg.elsewhere:
        return _run_elsewhere(task, leg, state)
    given, options = Given(), task.options
    more = {name: value for name, value in options.items() if state is None or name not in ("seed", "epoch")}
    parsed = None if state is None else json.loads(state)
    with cut_by(leg.cut, task.small_rows):
        dataset = leg.places.build(task.code)
        with dataset.open(parsed, memory_limit=leg.memory_limit, debug=leg.debug, **more) as loader:
            _receive(loader, leg.take, task.told_every, given)
            given.ended = leg.take is None
            given.state = json.dumps(loader.state_dict(), allow_nan=False)
    return given


def _receive(loader: Loader[Any], take: int | None, told_every: int, given: Given) -> None:
    given.hashes.append(loader.stream_hash)
    elements: Iterable[Any] = loader if take is None else islice(loader, take) if take else ()
    for number, element in enumerate(elements):
        given.elements.append(element)
        given.origins.append(None if number % told_every else [told(origin) for origin in loader.origins()])
        given.hashes.append(loader.stream_hash)


def told(origin: Origin) -> tuple[Any, ...]:
    """Return what of an origin is the same in every run: not from where on the record is found, which reading tells."""
    row = json.loads(json.dumps(origin.row))
    row["spaces"] = [space[:4] for space in row.get("spaces", ())]
    return origin.url, origin.index, origin.epoch, origin.seed, json.dumps(row, sort_keys=True)


def _run_elsewhere(task: Task, leg: Leg, state: str | None) -> Given:
    tests = Path(__file__).parents[2]
    paths = [
        str(tests / "properties"),
        str(tests / "fakes"),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment = {**os.environ, FOLDER: str(folder()), "PYTHONPATH": os.pathsep.join(paths)}
    sent = pickle.dumps((task, replace(leg, elsewhere=False), state))
    program = [sys.executable, "-m", "metamorphic.elsewhere"]
    done = subprocess.run(program, input=sent, capture_output=True, env=environment, timeout=ELSEWHERE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"a new process failed:\n{done.stderr.decode()[-3000:]}")
    given = pickle.loads(done.stdout)
    if isinstance(given, Exception):
        raise given
    assert isinstance(given, Given)
    return given
