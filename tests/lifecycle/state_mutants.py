"""Damage states in every way, with the right checksum, and open them.

Run as a program for many: ``python tests/lifecycle/state_mutants.py --mutants 50000 --seed 1``.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
from resume_functions import count, is_kept, plus_one_later, some, ten_fold_by_run
from resume_plans import CASES, Case, draws, numbers, write_files

from aiostream_data import Dataset
from aiostream_data.errors import AiostreamError, StateMismatchError
from aiostream_data.state_checksum import checksum_of_state

LIMIT_S = 1.0
LIMIT_NBYTES = 50 << 20
HANG_S = 20.0
MOST_ELEMENTS = 400
MOST_SHOWN = 5_000
TRIES = 3

Json = Any
Path_ = tuple[Any, ...]


def for_ever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def batches_of(number: int) -> Dataset[Any]:
    return Dataset.range(int(number), int(number) + 9).batch(2).shuffle(3).unbatch()


def lines(folder: Path, files: str) -> Dataset[Any]:
    return Dataset.from_text(f"{folder}/{files}.txt", cycle_length=2, shuffle_shards=True)


def names(folder: Path, files: str) -> Dataset[Any]:
    return Dataset.list_files(f"{folder}/{files}.txt", seed=2)


def lines_in(folder: Path, number: int) -> Dataset[Any]:
    return Dataset.from_text(f"{folder}/[{number}-3].txt")


def mixed() -> Dataset[Any]:
    return Dataset.sample_from([Dataset.range(9).repeat(), Dataset.range(50).shuffle(5).repeat()], [1, 2], seed=1)


MORE: dict[str, Case] = {
    "generator without end": Case(lambda _: Dataset.from_generator(for_ever).map(abs).shuffle(4).batch(2)),
    "generator repeated": Case(lambda _: Dataset.from_generator(count, args=(7,)).repeat().shuffle(4)),
    "one-shot iterable": Case(lambda _: Dataset.from_iterable(iter(range(30))).shuffle(4)),
    "filter, flat_map and windows": Case(
        lambda _: numbers(60).filter(is_kept).flat_map(ten_fold_by_run).window(3, 2).shuffle(4)
    ),
    "a mixture of repeats": Case(lambda _: mixed().take(200)),
    "a mixture, shuffled": Case(lambda _: mixed().shuffle(5).batch(3)),
    "zip of batches": Case(lambda _: numbers(90).batch(3).shuffle(4).zip(numbers(30).enumerate()).skip(2)),
    "joined three deep": Case(
        lambda _: Dataset.zip(numbers(20), numbers(9).flat_map(batches_of)).shuffle(3).batch(2).unbatch().shuffle(4)
    ),
    "interleave of batches": Case(lambda _: numbers(9).interleave(batches_of, cycle_length=3).shuffle(4)),
    "cache of a free order": Case(
        lambda _: numbers(9).map(plus_one_later, concurrency=4, ordered=False).cache().repeat(3).shuffle(2)
    ),
    "cache of a free order, twice": Case(
        lambda _: numbers(9).map(plus_one_later, concurrency=4, ordered=False).cache().repeat(3)
    ),
    "of one rank": Case(lambda _: draws(30).shuffle(5).batch(3), options={"rank": 1, "world_size": 2}),
    "of one rank, by file": Case(
        lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord").shuffle(3),
        options={"rank": 1, "world_size": 2, "policy": "file", "counts": [10, 1], "tail": "repeat"},
    ),
    "left out": Case(
        lambda f: Dataset.from_text(f"{f}/*.txt", cycle_length=2).shuffle(3),
        options={"skip": [(1, 3)], "block": ["/nowhere/0.txt", ("/nowhere/2.txt", 3)]},
    ),
    "buckets over pack": Case(
        lambda _: (
            numbers(40).map(some).bucket_by_sequence_length(len, [2, 4], [3, 2, 4]).unbatch().enumerate().shuffle(4)
        )
    ),
    "shuffled behind other shards": Case(lambda f: lines(f, "[0-2]").shuffle(6).batch(2)),
    "other shards at their end": Case(lambda f: names(f, "[0-2]").interleave(Dataset.from_text).shuffle(9)),
    "other shards in a shuffle by choice": Case(lambda f: lines(f, "[0-2]").shuffle()),
    "windows behind other shards": Case(lambda f: lines(f, "[0-2]").window(4, 4)),
    "a mixture with a new input": Case(lambda f: Dataset.sample_from([numbers(9), lines(f, "0").map(len), numbers(7)])),
    "files that a function lists": Case(lambda f: numbers(2).flat_map(partial(lines_in, f)).shuffle(3)),
    "in a process": Case(lambda _: draws(20).shuffle(4).in_subprocess().batch(3), every=10),
}

BEFORE: dict[str, tuple[Callable[[Path], Dataset[Any]], int]] = {
    "shuffled behind other shards": (lambda f: lines(f, "[12]").shuffle(6).batch(2), 2),
    "other shards at their end": (lambda f: names(f, "[02]").interleave(Dataset.from_text).shuffle(9), 7),
    "other shards in a shuffle by choice": (lambda f: lines(f, "[02]").shuffle(), 3),
    "windows behind other shards": (lambda f: lines(f, "[03]").window(4, 4), 2),
    "a mixture with a new input": (lambda f: Dataset.sample_from([numbers(9), lines(f, "0").map(len)]), 3),
}
"""What some plans were before, and after how many elements: their states are those behind the change."""

ALLOWED = ["shards", "operator"]

PLANS: dict[str, Case] = {**CASES, **MORE}
"""Plans of every source and operator."""

RARE = {"map, in processes", "interleave, in processes", "in a process"}
"""Plans that start processes: each takes a second to open."""


@dataclass
class Plan:
    """A data set, and states of it as JSON."""

    name: str
    dataset: Dataset[Any]
    case: Case
    states: list[str]


@cache
def plan_of(name: str, folder: Path) -> Plan:
    """Return a plan with states from its beginning, middle and end."""
    case = PLANS[name]
    states: list[str] = []
    begin: dict[str, Any] = {"seed": 3, **(case.options or {})}
    if name in BEFORE:
        begin = {"state": _state_before(*BEFORE[name], folder), "allow": ALLOWED}
    with case.make(folder).open(**begin) as loader:
        states.append(json.dumps(loader.state_dict()))
        for number, _ in enumerate(islice(loader, 60)):
            states.append(json.dumps(loader.state_dict()))
            if name.startswith("a mixture") and number == 5:
                with suppress(AiostreamError):
                    loader.set_weights([1, 1])
        states.append(json.dumps(loader.state_dict()))
    last = len(states) - 1
    points = sorted({0, 1, 2, 3, last // 3, last // 2, last - 1, last} & set(range(len(states))))
    return Plan(name, case.make(folder), case, [states[point] for point in points])


def _state_before(make: Callable[[Path], Dataset[Any]], elements: int, folder: Path) -> Json:
    with make(folder).open(seed=3) as loader:
        assert len(list(islice(loader, elements))) == elements
        return json.loads(json.dumps(loader.state_dict()))


# -- what is done to a state


EXTREMES: list[Json] = [
    *(-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**40, 2**53 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**9),
    *(-(2**31), -(2**63), 10**300, 0.5, 1.0, 1e308, float("inf"), float("nan"), True, False, None),
    *("", "x", "rows", "shuffle", "take", "0", [], {}, [0], [None], [[]], {"op": "rows", "next": 0}, {"rows": 0}),
]


def places_in(value: Json, path: Path_ = ()) -> Iterator[Path_]:
    """Yield where every value stands, the whole left out."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*path, name)
        yield from places_in(part, (*path, name))


def at(state: Json, path: Path_) -> Json:
    for name in path:
        state = state[name]
    return state


def nested(draw: random.Random) -> Json:
    """Return lists and dicts that are nested deeply."""
    value: Json = draw.choice([None, 0, {"op": "rows", "next": 0}])
    for _ in range(draw.choice([3, 30, 300])):
        value = draw.choice([[value], {"op": "take", "taken": 1, "input": value}, {"input": value}])
    return value


def huge(draw: random.Random) -> Json:
    """Return a value of up to some megabytes."""
    size = draw.choice([1_000, 100_000, 1_000_000])
    return draw.choice(["A" * size, [0] * (size // 10), "é" * size, {str(n): n for n in range(size // 100)}])


def extreme(draw: random.Random, state: Json, path: Path_) -> None:
    at(state, path[:-1])[path[-1]] = copy.deepcopy(draw.choice(EXTREMES))


def nudged(draw: random.Random, state: Json, path: Path_) -> None:
    found = at(state, path)
    if type(found) in (int, float):
        at(state, path[:-1])[path[-1]] = found + draw.choice([-2, -1, 1, 2, 5, 100, 2**20])
    else:
        extreme(draw, state, path)


def dropped(draw: random.Random, state: Json, path: Path_) -> None:
    del at(state, path[:-1])[path[-1]]


def renamed(draw: random.Random, state: Json, path: Path_) -> None:
    holder = at(state, path[:-1])
    if isinstance(holder, dict):
        holder[draw.choice(["x", "", f"{path[-1]}s", "next", "input"])] = holder.pop(path[-1])
    else:
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(holder[path[-1]]))


def cut(draw: random.Random, state: Json, path: Path_) -> None:
    found = at(state, path)
    if isinstance(found, (str, list)) and found:
        at(state, path[:-1])[path[-1]] = found[: draw.randrange(len(found))]
    else:
        extreme(draw, state, path)


def doubled(draw: random.Random, state: Json, path: Path_) -> None:
    found: Any = at(state, path)
    if isinstance(found, (str, list)):
        at(state, path[:-1])[path[-1]] = found * 2
    else:
        extreme(draw, state, path)


def garbled(draw: random.Random, state: Json, path: Path_) -> None:
    """Change characters of a text, which may be the data of packed ids."""
    found = at(state, path)
    if not isinstance(found, str) or not found:
        extreme(draw, state, path)
        return
    letters = list(found)
    for _ in range(draw.randint(1, 4)):
        letters[draw.randrange(len(letters))] = draw.choice("ABCxyz019+/=é-")
    at(state, path[:-1])[path[-1]] = "".join(letters)


def replaced(draw: random.Random, state: Json, path: Path_) -> None:
    """Put a value from elsewhere in the state here."""
    other = draw.choice(list(places_in(state)))
    at(state, path[:-1])[path[-1]] = copy.deepcopy(at(state, other))


def swapped(draw: random.Random, state: Json, path: Path_) -> None:
    """Exchange a value with another one of its dict or list."""
    holder = at(state, path[:-1])
    other = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[path[-1]], holder[other] = holder[other], holder[path[-1]]


def deep(draw: random.Random, state: Json, path: Path_) -> None:
    at(state, path[:-1])[path[-1]] = nested(draw)


def large(draw: random.Random, state: Json, path: Path_) -> None:
    at(state, path[:-1])[path[-1]] = huge(draw)


Damage = Callable[[random.Random, Json, Path_], None]
WAYS: list[Damage] = [
    *[extreme] * 10,
    *[nudged] * 5,
    *(dropped, dropped, renamed, cut, doubled, garbled, garbled, replaced, replaced, swapped, swapped, deep),
]


def mutant(draw: random.Random, text: str) -> tuple[Json, str]:
    """Return a damaged state with the right checksum, and what was done."""
    state = json.loads(text)
    done = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        places = list(places_in({name: value for name, value in state.items() if name != "check"}))
        below = [path for path in places if path[0] in ("position", "rows")]
        path = draw.choice(below if below and draw.random() < 0.7 else places)
        way = large if draw.random() < 0.01 else draw.choice(WAYS)
        with suppress(KeyError, IndexError, TypeError):  # damaged before
            way(draw, state, path)
            done.append(f"{way.__name__} {'.'.join(map(str, path))}")
    state.pop("check", None)
    state["check"] = checksum_of_state(state)
    return state, ", ".join(done)


# -- what becomes of it


class Hangs(BaseException):
    """A mutant did not end in time."""


@contextmanager
def ends(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Tried:
    """What became of one mutant."""

    outcome: str
    seconds: float
    nbytes: int

    @property
    def is_wrong(self) -> bool:
        return self.outcome.startswith(("WRONG", "HANGS"))

    def __str__(self) -> str:
        return f"{self.outcome} in {self.seconds:.2f} s, {self.nbytes / 2**20:.1f} MiB"


@dataclass
class Report:
    """What became of all mutants.

    Attributes:
        outcomes: How many were refused, opened, or raised another error of the package.
        wrong: What raised anything else, or hung.
        slow, large: What took longer or more memory than it may.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    largest_nbytes: int = 0

    def note(self, tried: Tried, case: str, measured: bool) -> None:
        self.outcomes[tried.outcome.split()[0]] += 1
        if tried.is_wrong:
            self.wrong.append(case)
        if not measured:
            return
        self.slowest_s = max(self.slowest_s, tried.seconds)
        self.largest_nbytes = max(self.largest_nbytes, tried.nbytes)
        if tried.seconds > LIMIT_S:
            self.slow.append(case)
        if tried.nbytes > LIMIT_NBYTES:
            self.large.append(case)

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.outcomes.most_common())
        return (
            f"{sum(self.outcomes.values())} mutants: {counts}; {len(self.wrong)} wrong; {len(self.slow)} over "
            f"{LIMIT_S:g} s, slowest {self.slowest_s:.2f} s; {len(self.large)} over {LIMIT_NBYTES >> 20} MiB, "
            f"largest growth {self.largest_nbytes / 2**20:.1f} MiB"
        )


def peak_nbytes() -> int:
    """Return the largest resident memory since :func:`forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def forget_peak() -> int:
    """Begin to measure anew; return the resident memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def outcome(plan: Plan, state: Json) -> str:
    """Open a state and read on; return what became of it."""
    options = {name: value for name, value in (plan.case.options or {}).items() if name not in ("skip", "block")}
    try:
        with ends(HANG_S), plan.dataset.open(state, **options) as loader:
            for _ in islice(loader, MOST_ELEMENTS):
                pass
            json.dumps(loader.state_dict())
    except StateMismatchError:
        return "refused"
    except AiostreamError as error:
        return f"{type(error).__name__}"
    except Hangs:
        return "HANGS"
    except BaseException as error:
        return f"WRONG {error!r:.300}"
    return "opened"


def run(mutants: int, seed: int, folder: Path, names: list[str] | None = None, show: bool = False) -> Report:
    """Try mutants of all plans; the same ones for the same seed."""
    report = Report()
    common = names or [name for name in PLANS if name not in RARE]
    rare = [] if names else sorted(RARE)
    for number in range(mutants):
        draw = random.Random(f"{seed}:{number}")
        name = draw.choice(rare) if rare and number % 500 == 499 else draw.choice(common)
        plan = plan_of(name, folder)
        state, done = mutant(draw, draw.choice(plan.states))
        tried = _tried(plan, state, folder, 1 if name in RARE else TRIES)
        case = f"{seed}:{number} {name}: {done}: {tried}"
        if show:
            sys.stdout.write(f"{case}\n")
        report.note(tried, f"{case}: {json.dumps(state)[:MOST_SHOWN]}", measured=name not in RARE)
    return report


def _tried(plan: Plan, state: Json, folder: Path, tries: int) -> Tried:
    """Try a mutant, and once more where it was slow: another program may have had the processor."""
    while True:
        if "one-shot" in plan.name:
            plan = replace(plan, dataset=plan.case.make(folder))
        before, started = forget_peak(), perf_counter()
        found = outcome(plan, state)
        tried = Tried(found, perf_counter() - started, max(0, peak_nbytes() - before))
        tries -= 1
        if tried.seconds <= LIMIT_S or not tries or tried.is_wrong:
            return tried


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan", action="append")
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        report = run(asked.mutants, asked.seed, write_files(Path(folder)), asked.plan, asked.show)
    for case in [*report.wrong, *report.slow, *report.large]:
        sys.stdout.write(f"{case}\n")
    sys.stdout.write(f"{report}\n")
    return 1 if report.wrong or report.slow or report.large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
