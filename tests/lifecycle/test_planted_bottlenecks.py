"""A corpus of pipelines with a bottleneck that was planted: the report names it, and advises nothing absurd.

Each is run once in a usual run, and ``ASD_EXAMPLES=5`` times with that in the environment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import plant_functions as functions
import pytest
from applied_changes import with_change
from plants import NUMBERS, PLANTS, Plant, Soil, alone
from run_summary import add_line

from aiostream_data import Dataset
from aiostream_data.metrics.bottleneck_result import Limit
from aiostream_data.plan.base import walk
from aiostream_data.plan.operators import Call, Map, ToDevice
from aiostream_data.plan.shown import subject_of
from aiostream_data.plan.sources import ReadFiles

RUNS: Final = max(1, int(float(os.environ.get("ASD_EXAMPLES", "1"))))
RUN_S: Final = 1.5
"""From the first element on."""

RIGHT: Final = 0.95
RIGHT_AT_ONCE: Final = 0.85
"""Share of the plants that reports name at the first attempt. Other programs on the machine can mislead one report."""


def run(dataset: Dataset[Any], plant: Plant) -> Limit:
    """Take elements for a while, and return what the report says."""
    with dataset.open(**plant.options) as loader:
        until = 0.0
        for _ in loader:
            until = until or time.perf_counter() + RUN_S
            if plant.step_s:
                time.sleep(plant.step_s)
            if time.perf_counter() > until:
                break
        return loader.report().limit


def wrong(plant: Plant, limit: Limit) -> list[str]:
    """Return what a report says that it should not, and what it should say and does not."""
    told = {"stage": limit.stage, "cause": limit.cause, "what": limit.what.partition(" (")[0]}
    meant = {"stage": plant.stage, "cause": plant.cause, "what": plant.what or told["what"]}
    found = [f"{name} should be {meant[name]!r}" for name in meant if told[name] != meant[name]]
    if plant.detail and limit.detail != plant.detail:
        found.append(f"detail should be {plant.detail!r}")
    if not found and plant.option is not None:
        fitting = [change for change in limit.changes if change.option == plant.option]
        if not any(plant.value in (None, change.value) for change in fitting):
            found.append(f"{plant.option}={plant.value or '...'} should be proposed")
    if not found and not re.search(plant.mentions, limit.advice):
        found.append(f"the advice should mention {plant.mentions!r}")
    return found


def absurdities(dataset: Dataset[Any], limit: Limit) -> list[str]:
    """Return what a report advises that is in force, impossible, or about something that the chain does not have."""
    found = []
    for change in limit.changes:
        try:
            changed, options = with_change(dataset, change)
            with changed.open(**options) as loader:
                next(iter(loader))
        except Exception as error:
            found.append(f"{change} is refused: {error!r}")
    unfitting = [pattern for pattern in forbidden(dataset, limit) if re.search(pattern, limit.advice)]
    return found + [f"it says {pattern!r}" for pattern in unfitting]


def forbidden(dataset: Dataset[Any], limit: Limit) -> list[str]:
    """Return what an advice must not contain."""
    nodes = list(walk(dataset.plan))
    calls = [node for node in nodes if isinstance(node, Call) and subject_of(node) == limit.what]
    patterns = ["prefetch"]
    if any(node.executor == "process" for node in calls):
        patterns.append("executor='process'")
    if limit.stage == "from_generator":
        patterns.append(r"concurrency|cycle_length|executor=")
    if "read_" not in limit.stage:
        patterns.append(r"cycle_length|read_ahead|disk|shard|store|compress|closer")
    if any(isinstance(node, ReadFiles) and node.format.whole for node in nodes):
        patterns.append("cycle_length")
    if not any(isinstance(node, ToDevice) for node in nodes):
        patterns.append("device|transform=")
    if limit.cause != "memory":
        patterns.append("memory_limit")
    if limit.cause == "waiting":
        patterns.append("AUTO")
    if limit.cause == "consumer":
        patterns.append("set |add ")
    if limit.cause not in ("cpu", "gil"):
        patterns.append("cheaper|more cores")
    return patterns


@pytest.mark.timeout(150 + 120 * RUNS)
def test_reports_name_planted_bottlenecks_and_advise_nothing_absurd(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_mistakes: list[str] = []
    mistakes: list[str] = []
    absurd: list[str] = []

    def attempt(name: str, mistakes: list[str]) -> bool:
        plant = PLANTS[name]
        with monkeypatch.context() as patch, plant.grow(Soil(tmp_path, patch)) as dataset:
            limit = run(dataset, plant)
            patch.undo()
            told = ", ".join(wrong(plant, limit))
            mistakes += [f"{name}: {told}: {limit.sentence}"] if told else []
            absurd.extend(f"{name}: {told}: {limit.sentence}" for told in absurdities(dataset, limit))
        return not told

    runs = RUNS * len(PLANTS)
    for number in range(runs):
        name = list(PLANTS)[number % len(PLANTS)]
        if not attempt(name, first_mistakes):
            attempt(name, mistakes)
    at_once, in_the_end = runs - len(first_mistakes), runs - len(mistakes)
    counted = (
        f"planted bottlenecks: {at_once} of {runs} named at once, {in_the_end} at the second attempt, "
        f"{len(absurd)} absurd pieces of advice"
    )
    for line in (counted, *first_mistakes, *mistakes, *absurd):
        add_line(pytestconfig, line)
    assert not absurd
    assert in_the_end >= RIGHT * runs, mistakes
    assert at_once >= RIGHT_AT_ONCE * runs, first_mistakes


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (functions.wait, {}),
        (functions.wait, {"concurrency": 128}),
        (functions.wait, {"executor": "process"}),
        (functions.digest_and_wait, {"concurrency": 1}),
        (functions.spin_and_wait, {"concurrency": 64}),
        (functions.add_one, {"executor": "process"}),
    ],
)
def test_whoever_follows_the_advice_never_comes_back_to_an_earlier_setting(
    function: Callable[[int], int], options: dict[str, Any]
) -> None:
    plant = Plant(grow=alone(NUMBERS), stage="map", cause="")
    dataset, settings = NUMBERS.map(function, **options).batch(20), []
    while True:
        settings.append(setting_of(dataset))
        assert settings.count(settings[-1]) == 1, settings
        change = next((each for each in run(dataset, plant).changes if each.call == "map"), None)
        if change is None:
            break
        dataset, _ = with_change(dataset, change)


def setting_of(dataset: Dataset[Any]) -> tuple[Any, ...]:
    node = next(node for node in walk(dataset.plan) if isinstance(node, Map))
    return node.executor, node.concurrency, node.ordered
