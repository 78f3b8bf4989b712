"""One case: a drawn plan, a reference run, and other runs that must give the same. All of it from one seed."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass, replace
from typing import Any

from drawn_cases import CaseHangs, ends_within

from aiostream_data.errors import PlanError, RankError, StageBuildError
from metamorphic.circumstances import Ranks, Run, Stops, Workers, draw_runs
from metamorphic.drawing import Step, one_of
from metamorphic.oracle import Finding, Wanted, compare_in_any_order, compare_in_order
from metamorphic.plans import draw_plan
from metamorphic.program import Short
from metamorphic.rank_oracle import compare_ranks, rows_given
from metamorphic.running import Given, Leg, Task, run_leg

SLOW = 0.006
"""Share of legs that start a process."""

CASE_S = 30.0
"""Seconds for one run, which takes a twentieth of one on a quiet machine."""

PROCESS_S = 30.0
"""Seconds more for each process that a run starts."""

TOLD_EVERY = 3
"""Origins of every so many elements are compared, as asking for them takes as long as making an element."""


class NotApplicable(Exception):
    """A plan cannot be run like that, and says so."""


@dataclass(frozen=True, repr=False)
class Case(Short):
    """A plan, how its reference is run, and one other run. Prints as what :func:`find` takes.

    Attributes:
        code: The program of the plan.
        options: For ``open``.
        run: None when the reference itself fails.
        ordered: Elements come in one order.
        batched: Elements are batches, whose rows count where there is no order.
        named: Rows have the same names in any order.
        small_rows: See :func:`.cuts.cut_by`.
    """

    code: str
    options: dict[str, Any]
    run: Run | None = None
    ordered: bool = True
    batched: bool = False
    named: bool = True
    small_rows: int | None = None


@dataclass(frozen=True)
class Failure:
    """A case in which something is wrong.

    Attributes:
        step: The program of the case as a tree.
    """

    seed: int
    step: Step
    case: Case
    finding: Finding

    def __str__(self) -> str:
        return f"{self.finding.kind}, seed {self.seed}: {self.finding.text}\n{self.program()}"

    def program(self) -> str:
        """Return a program for the folder ``tests/properties`` that does the run again."""
        return f"from metamorphic.again import *\n\nprint(find({self.case!r}))"


@dataclass
class Counted:
    """What was tried."""

    plans: int = 0
    runs: int = 0
    not_applicable: int = 0


def try_seed(seed: int, slow: float = SLOW, counted: Counted | None = None) -> list[Failure]:
    """Draw a plan and its runs, run all, and return what is wrong."""
    counted = Counted() if counted is None else counted
    drawing = random.Random(seed)
    plan = draw_plan(drawing)
    options = {"seed": drawing.randrange(100), "epoch": one_of(drawing, 0, 0, 0, 1, 2), "rank": 0, "world_size": 1}
    case = Case(
        plan.code,
        options,
        ordered=plan.ordered,
        batched=plan.kind == "batch",
        named=plan.named,
        small_rows=one_of(drawing, None, 3),
    )
    counted.plans += 1
    reference = _reference(case)
    if isinstance(reference, Finding):
        return [Failure(seed, plan.step, case, reference)]
    failures = []
    hosted = case.small_rows is None  # which no other process would know of
    for run in draw_runs(drawing, plan, len(reference.elements), slow, hosted):
        tried = replace(case, run=run)
        counted.runs += 1
        finding = _check(tried, reference)
        if finding is not None and finding.kind == "not applicable":
            counted.not_applicable += 1
        elif finding is not None:
            failures.append(Failure(seed, plan.step, tried, finding))
    return failures


def find(case: Case) -> Finding | None:
    """Run a case, its reference included, and return what is wrong."""
    reference = _reference(case)
    return reference if isinstance(reference, Finding) else _check(case, reference)


def _reference(case: Case) -> Given | Finding:
    try:
        with ends_within(CASE_S, case):
            return run_leg(Task(case.code, case.options, case.small_rows), Leg())
    except CaseHangs as hang:
        return Finding("hang of the reference", str(hang))
    except Exception as error:
        return Finding(f"reference {type(error).__name__}", _told(error))


def _check(case: Case, reference: Given) -> Finding | None:
    """Do the run of a case and return what is wrong with it."""
    try:
        with ends_within(CASE_S + PROCESS_S * (0 if case.run is None else case.run.processes), case):
            if isinstance(case.run, Ranks):
                return _check_ranks(case, case.run, reference)
            if isinstance(case.run, Workers):
                return _check_workers(case, case.run, reference)
            return None if case.run is None else _check_stops(case, case.run, reference)
    except CaseHangs as hang:
        return Finding("hang", str(hang))
    except NotApplicable as reason:
        return Finding("not applicable", str(reason))
    except Exception as error:
        return Finding(type(error).__name__, _told(error))


def _told(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-4:])


def _check_stops(case: Case, run: Stops, reference: Given) -> Finding | None:
    in_order = case.ordered and run.deterministic
    options = {**case.options, "deterministic": run.deterministic}
    task = Task(case.code, options, case.small_rows, TOLD_EVERY if in_order else 1)
    legs: list[Given] = []
    for leg in run.legs:
        legs.append(_leg(task, leg, legs[-1].state if legs else None))
    if in_order:
        return compare_in_order(reference, legs)
    return compare_in_any_order(Wanted(reference, batched=case.batched, named=case.named), legs)


def _leg(task: Task, leg: Leg, state: str | None) -> Given:
    if not leg.places.workers:
        return run_leg(task, leg, state)
    try:
        return run_leg(task, leg, state)
    except (PlanError, StageBuildError) as reason:
        if "in_subprocess" in str(reason):  # several workers need one order, for example
            raise NotApplicable(str(reason)) from reason
        raise


def _check_ranks(case: Case, run: Ranks, reference: Given) -> Finding | None:
    firsts = [_of_rank(case, run, rank, None) for rank in range(run.before)]
    done = sum(map(len, rows_given(run, firsts)))
    finding = compare_ranks(run, reference, firsts, 0, hashed=True)
    if finding is not None or len(reference.elements) - done < run.after:
        return finding
    states = f"[{', '.join(first.state for first in firsts)}]" if run.all_states else firsts[-1].state
    others = [_of_rank(case, run, rank, states) for rank in range(run.after)]
    return compare_ranks(run, reference, others, done, hashed=run.all_states)


def _check_workers(case: Case, run: Workers, reference: Given) -> Finding | None:
    """Compare what each worker gives, before and after its stop, with every so many-th element of the reference."""
    for worker in range(run.count):
        task = Task(case.code, {**case.options, "worker": (worker, run.count)}, case.small_rows, TOLD_EVERY)
        first = run_leg(task, replace(run.legs[worker], take=run.steps))
        second = run_leg(task, run.legs[run.count + worker], first.state)
        mine = slice(worker, None, run.count)
        wanted = Given(reference.elements[mine], reference.origins[mine])
        finding = compare_in_order(wanted, [Given(leg.elements, leg.origins) for leg in (first, second)])
        if finding is not None:
            return Finding(f"workers: {finding.kind}", f"worker {worker} of {run.count}: {finding.text}")
    return None


def _of_rank(case: Case, run: Ranks, rank: int, states: str | None) -> Given:
    number = run.after if states else run.before
    leg = run.legs[run.before + rank] if states else replace(run.legs[rank], take=run.steps)
    options = {**case.options, "rank": rank, "world_size": number, "tail": "drop"}
    task = Task(run.program(case.code, number), options, case.small_rows, TOLD_EVERY)
    try:
        return run_leg(task, leg, states)
    except (RankError, PlanError) as reason:
        raise NotApplicable(str(reason)) from reason
