"""Stop a drawn plan several times, change its shards at each stop, and compare the rows with a simple model.

The model is the number of copies of each record that are still to come. A change of the list sets it to 0 for records
that are gone, and for new ones to the number of epochs that are left, that in progress included. Only between two
epochs, and where rows of several epochs are held at once, may new records come an epoch later.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from drawn_cases import ends_within
from metamorphic.cuts import cut_by
from metamorphic.drawing import chance, one_of
from shard_folders import Folder
from shard_plans import Plan, draw_plan, rows_in

from aiostream_data.errors import StateMismatchError

CASE_S = 60.0

REFUSALS = {
    "unbatch": "is inside an element that unbatch() was splitting",
    "cache": "counts rows of a complete cache",
    "listed": "another dataset lists",
    "concatenate": "concatenate() is past that source in this epoch",
    "replaced": "was changed after rows of it had been read",
    "held": "which is no longer listed",
}
"""What errors say, by what they are due to."""


class WrongRows(AssertionError):
    """The rows of a run are not those of the model, or it was refused without need."""


@dataclass
class Model:
    """The copies of each record that are still to come, at least and at most."""

    times: int
    least: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)

    def add(self, rows: list[str], least: int, most: int) -> None:
        for row in rows:
            self.least[row], self.most[row] = least, most

    def take(self, rows: Counter[str]) -> None:
        """Hear that rows were delivered."""
        over = {row: count for row, count in rows.items() if count > self.most[row]}
        if over:
            raise WrongRows(f"delivered too often: {over}")
        for row, count in rows.items():
            self.most[row] -= count
            self.least[row] = max(0, self.least[row] - count)
        self.given += rows

    def end(self) -> None:
        """Hear that no more rows come."""
        missing = +self.least
        if missing:
            raise WrongRows(f"never delivered: {dict(missing)}")

    def change(self, before: dict[str, list[str]], after: dict[str, list[str]], mixes_epochs: bool) -> bool:
        """Hear that the shards of a source changed; return whether the state must be refused."""
        epochs = max((self.given[row] for rows in before.values() for row in rows), default=0)
        most = self.times - max(0, epochs - 1)
        least = 0 if mixes_epochs else most if self.times == 1 else most - 1
        must_refuse = False
        for name, rows in before.items():
            if after.get(name) != rows:
                must_refuse |= self.times == 1 and name in after and any(self.given[row] for row in rows)
                self.add(rows, 0, 0)
        for name, rows in after.items():
            if before.get(name) != rows:
                self.add(rows, least, most)
        return must_refuse


@dataclass
class Outcome:
    """How a case ended: all rows are exact, or what it was refused for."""

    refused: str = ""


def try_case(seed: int, folder: Path) -> Outcome:
    """Draw a plan and changes of its shards, and run it with them.

    Raises:
        WrongRows: Rows are lost or repeated, or a state was refused without need.
    """
    random = Random(seed)
    sources = [Folder.drawn(random, folder / name) for name in "abc"[: one_of(random, 1, 1, 1, 2, 2, 3)]]
    case = _Case(random, draw_plan(random, sources))
    try:
        with ends_within(CASE_S, seed, case.plan.text):
            return case.run()
    except WrongRows as wrong:
        told = "\n".join([case.plan.text, *case.told])
        raise WrongRows(f"seed {seed}: {wrong}\n{told}") from wrong


@dataclass
class _Case:
    random: Random
    plan: Plan
    told: list[str] = field(default_factory=list)
    changes: set[str] = field(default_factory=set)
    shared: bool = False  # several ranks saved a state, who can go on in their order only

    def run(self) -> Outcome:
        random, plan = self.random, self.plan
        model = Model(plan.times)
        for folder in plan.sources:
            for records in folder.shards.values():
                model.add(records, plan.times, plan.times)
        state, must_refuse, seed = None, False, random.randrange(100)
        for stops in reversed(range(one_of(random, 2, 2, 2, 3, 4))):
            try:
                rows, state = self._leg(state, {} if state else {"seed": seed}, bool(stops), model.least.total())
            except StateMismatchError as error:
                return Outcome(self._reason(error))
            self.told.append(f"got {sorted(rows.elements())}")
            if must_refuse:
                raise WrongRows("a shard was replaced after rows of it were delivered, and the state is not refused")
            model.take(rows)
            if stops:
                must_refuse = self._change(model)
        if plan.complete:
            model.end()
        return Outcome()

    def _leg(self, state: Any, options: dict[str, Any], stops: bool, left: int) -> tuple[Counter[str], Any]:
        """Run until a drawn stop, or to the end; return the rows and the state."""
        random, plan = self.random, self.plan
        take = random.randint(0, max(1, left // 2)) if stops else None
        ranks = random.randint(2, 3) if take and plan.for_ranks and plan.complete and chance(random, 0.3) else 1
        if take is not None and ranks > 1:
            take = min(take // ranks, left // ranks - 1)
            ranks, take = (ranks, take) if take > 0 and left > 3 * ranks else (1, max(0, take))
        self.shared |= ranks > 1
        if not self.shared and plan.for_ranks and not plan.counts and chance(random, 0.1) and not stops:
            options = {**options, "deterministic": False}
        cut = random.randrange(1 << 20) if chance(random, 0.7) else None
        self.told.append(f"take {take} of {ranks} ranks, cut by {cut}, {options}")
        rows: Counter[str] = Counter()
        saved = None
        with cut_by(cut):
            for rank in range(ranks):
                where: dict[str, Any] = {"rank": rank, "world_size": ranks, **options}
                with plan.build().open(state, allow=["shards"], **where) as loader:
                    for element in loader if take is None else islice(loader, take):
                        rows.update(rows_in(element))
                    saved = json.loads(json.dumps(loader.state_dict()))
        return rows, saved

    def _change(self, model: Model) -> bool:
        must_refuse = False
        for folder in self.plan.sources:
            if chance(self.random, 0.6 if len(self.plan.sources) > 1 else 0.95):
                before = dict(folder.shards)
                done = folder.change(self.random)
                self.changes.update(done)
                self.told.append(f"{folder.name}: {done}, now {sorted(folder.shards)}")
                must_refuse |= model.change(before, folder.shards, self.plan.mixes_epochs)
        return must_refuse

    def _reason(self, error: StateMismatchError) -> str:
        """Return what a refusal is due to.

        Raises:
            WrongRows: Nothing in the plan and its changes asks for it, or it does not say what to do.
        """
        reason = next((name for name, text in REFUSALS.items() if text in str(error)), "")
        possible = {*self.plan.counts}
        possible |= {"replaced"} if "replace" in self.changes else set()
        possible |= {"held"} if "remove" in self.changes and (self.plan.holds or self.plan.counts) else set()
        if reason not in possible or not error.cure:
            raise WrongRows(f"refused: {error}") from error
        return reason
