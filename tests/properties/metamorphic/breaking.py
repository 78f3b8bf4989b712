"""Put a function that fails on some element somewhere into a drawn plan, and run the plan up to that error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from aiostream_data.testing.comparing import same, sequence_difference
from metamorphic.circumstances import draw_runs
from metamorphic.cuts import cut_by
from metamorphic.drawing import Drawn, Step, one_of
from metamorphic.plans import draw_plan
from metamorphic.running import Leg


def break_somewhere(random: Random, plan: Drawn) -> str:
    """Return the program of a plan with a function in it that may fail, on elements that the seed decides."""
    chosen = random.choice([step for step in _steps(plan.step) if "to_device" not in step.text])
    breaks = f"{random.randrange(1009)}, {one_of(random, 2, 5, 11, 31)}"
    call = one_of(
        random,
        f"map(Breaks({breaks}), **HOW)",
        f"map(Breaks({breaks}), **HOW)",
        f"filter(Breaks({breaks}, True), **HOW)",
        f"map(BreaksLater({breaks}), **AWAITED)",
        f"filter(BreaksLater({breaks}, True))",
        f"flat_map(BreaksInside({breaks}))",
        f"interleave(BreaksInside({breaks}), cycle_length=3, block_length=2)",
        f"map(Breaks({breaks}, as_lengths=True), **HOW).batch({random.randint(1, 4)})",
        f"map(Breaks({breaks}, as_lengths=True), **HOW).window({random.randint(1, 4)}, {random.randint(1, 3)})",
        f"map(number).group_by_window(Breaks({breaks}), whole_window, {random.randint(1, 3)})",
        f"map(number).group_by_reducer(length, size_of_key, Breaks({breaks}))",
        f"batch({random.randint(1, 4)}, collate=Breaks({breaks}))",
        f"map(named).with_column('n', Breaks({breaks}), **HOW)",
        f"map(number).bucket_by_sequence_length(Breaks({breaks}), [3, 9, 30], [2, 3, 1, 2], no_padding=True)",
    )
    return _replaced(plan.step, chosen, Step(f"@0.{call}", (chosen,))).code


def _steps(step: Step) -> Iterator[Step]:
    yield step
    for below in step.inputs:
        yield from _steps(below)


def _replaced(step: Step, old: Step, new: Step) -> Step:
    if step is old:
        return new
    return replace(step, inputs=tuple(_replaced(below, old, new) for below in step.inputs))


@dataclass(frozen=True)
class Ended:
    """What a run gave, and how it ended.

    Attributes:
        error: "Type: message"; empty where it ended without one.
        state: After the last element, as JSON.
    """

    elements: list[Any]
    error: str
    state: str


def run_until_error(code: str, options: dict[str, Any], leg: Leg, small: int | None, state: str | None = None) -> Ended:
    """Run a program, or as many elements of it as the leg takes."""
    more = {name: value for name, value in options.items() if state is None or name not in ("seed", "epoch")}
    elements: list[Any] = []
    with cut_by(leg.cut, small):
        dataset = leg.places.build(code)
        parsed = None if state is None else json.loads(state)
        with dataset.open(parsed, memory_limit=leg.memory_limit, debug=leg.debug, **more) as loader:
            error = ""
            try:
                for element in loader:
                    elements.append(element)
                    if len(elements) == leg.take:
                        break
            except Exception as raised:  # of whatever kind
                error = _told(raised)
            return Ended(elements, error, json.dumps(loader.state_dict()))


def _told(error: Exception) -> str:
    name = type(error).__name__.removeprefix("RecordError[").removesuffix("]")
    return name if name != "Broken" else f"{name}: {str(error).rpartition(' ')[2]}"


def try_broken(seed: int) -> str | None:
    """Draw a plan that may fail and a few runs of it; return what is wrong with which run, or None."""
    random = Random(seed)
    plan = draw_plan(random)
    while not plan.ordered:
        plan = draw_plan(random)
    code = break_somewhere(random, plan)
    options = {"seed": random.randrange(100), "epoch": one_of(random, 0, 0, 1), "rank": 0, "world_size": 1}
    small = one_of(random, None, 3)
    wanted = run_until_error(code, options, Leg(debug=True), small)
    for run in draw_runs(random, plan, max(2, len(wanted.elements)), 0.01, small is None):
        for leg in run.legs[-1:]:
            one = replace(leg, take=None, elsewhere=False)
            got = run_until_error(code, options, one, small)
            wrong = _wrong(wanted, got)
            if wrong is None and wanted.elements:
                wrong = _wrong_when_stopped(code, options, one, small, wanted, random)
            if wrong is not None:
                return f"seed {seed}: {wrong}\n{code}\noptions={options}, small={small}, leg={one}"
    return None


def _wrong(wanted: Ended, got: Ended) -> str | None:
    found = sequence_difference(wanted.elements, got.elements, same)
    if found is None and wanted.error != got.error:
        found = f"the error is {got.error!r} instead of {wanted.error!r}"
    return found


def _wrong_when_stopped(
    code: str, options: dict[str, Any], leg: Leg, small: int | None, wanted: Ended, random: Random
) -> str | None:
    """Stop before the error, or behind it, and go on: the rest, and the same error, must come."""
    take = random.randint(1, len(wanted.elements))
    first = run_until_error(code, options, replace(leg, take=take), small)
    rest = run_until_error(code, options, leg, small, first.state)
    wrong = _wrong(wanted, Ended(first.elements + rest.elements, rest.error, rest.state))
    return None if wrong is None else f"stopped after {take} elements: {wrong}"
