"""Make a failing case smaller while it goes on failing in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter

from metamorphic.cases import Failure, find
from metamorphic.circumstances import Ranks, Run, Stops, Workers
from metamorphic.drawing import Step
from metamorphic.program import NOWHERE
from metamorphic.running import Leg

TRIES = 3
"""Times that a smaller case is tried before it counts as one that passes, as what a run does depends on time too."""


def shrunk(failure: Failure, limit_s: float = 30.0) -> Failure:
    """Return the smallest case found in so many seconds that fails as this one does."""
    ends = perf_counter() + limit_s
    smaller: Failure | None = failure
    while smaller is not None:
        failure, smaller = smaller, _first_failing(smaller, ends)
    return failure


def _first_failing(failure: Failure, ends: float) -> Failure | None:
    for smaller in _smaller(failure):
        for _ in range(TRIES):
            if perf_counter() > ends:
                return None
            finding = find(smaller.case)
            if finding is not None and finding.kind == failure.finding.kind:
                return replace(smaller, finding=finding)
    return None


def _smaller(failure: Failure) -> Iterator[Failure]:
    case = failure.case
    for run in _smaller_runs(case.run):
        yield replace(failure, case=replace(case, run=run))
    for step in _smaller_steps(failure.step):
        yield replace(failure, step=step, case=replace(case, code=step.code))
    if case.small_rows is not None:
        yield replace(failure, case=replace(case, small_rows=None))


def _smaller_steps(step: Step) -> Iterator[Step]:
    """Yield programs without one step, with a plain source instead of one, or with a smaller number in one."""
    yield from step.inputs
    if not step.text.startswith("Dataset.range("):
        yield Step("Dataset.range(5)")
    for number, inner in enumerate(step.inputs):
        for less in _smaller_steps(inner):
            yield replace(step, inputs=(*step.inputs[:number], less, *step.inputs[number + 1 :]))
    for text in _smaller_texts(step.text):
        yield replace(step, text=text)


def _smaller_texts(text: str) -> Iterator[str]:
    for found in re.finditer(r"(?<![@\w.])\d+(?!\w)", text):
        value = int(found.group())
        for less in sorted({0, 1, value // 2, value - 1} - {value}):
            if 0 <= less < value:
                yield text[: found.start()] + str(less) + text[found.end() :]
    for argument in (r", \*\*\w+", r", seed=\d+", r", random=True", r", \w+=(True|False|None)(?=[,)])"):
        for found in re.finditer(argument, text):
            yield text[: found.start()] + text[found.end() :]


def _smaller_runs(run: Run | None) -> Iterator[Run]:
    if isinstance(run, Stops):
        for number in range(len(run.legs) - 1):
            yield replace(run, legs=(*run.legs[:number], *run.legs[number + 1 :]))
        if not run.deterministic:
            yield replace(run, deterministic=True)
        for number, leg in enumerate(run.legs):
            if leg.take:
                for less in {0, leg.take // 2, leg.take - 1} - {leg.take}:
                    yield replace(run, legs=_with(run.legs, number, replace(leg, take=less)))
    if isinstance(run, (Ranks, Workers)) and run.steps:
        yield replace(run, steps=run.steps - 1)
    if run is not None:
        for number, leg in enumerate(run.legs):
            for plainer in _plainer(leg):
                yield replace(run, legs=_with(run.legs, number, plainer))


def _with(legs: tuple[Leg, ...], number: int, leg: Leg) -> tuple[Leg, ...]:
    return (*legs[:number], leg, *legs[number + 1 :])


_PLAINER: tuple[Callable[[Leg], Leg], ...] = (
    lambda leg: replace(leg, elsewhere=False),
    lambda leg: replace(leg, places=NOWHERE),
    lambda leg: replace(leg, places=replace(leg.places, workers=0)),
    lambda leg: replace(leg, places=replace(leg.places, how={}, awaited={}, read={}, spill={}, ahead=0)),
    lambda leg: replace(leg, debug=False),
    lambda leg: replace(leg, memory_limit=None),
    lambda leg: replace(leg, cut=None),
    lambda leg: replace(leg, cut=0 if leg.cut else leg.cut),
)


def _plainer(leg: Leg) -> Iterator[Leg]:
    for change in _PLAINER:
        plainer = change(leg)
        if plainer != leg:
            yield plainer
