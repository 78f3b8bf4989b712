"""The tables from plan nodes to the classes that run them."""

from __future__ import annotations

import subprocess
import sys

from aiostream_data._engine.compile import STAGES, STEPS
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.stage import Stage
from aiostream_data.plan.base import Node

PROGRAM = """
import sys
from aiostream_data import Dataset
assert list(Dataset.range(10).batch(5).map(len)) == [5, 5]
print(*(name for name in sys.modules if name.startswith("aiostream_data.")))
"""


def test_every_name_leads_to_a_class_of_its_kind() -> None:
    assert all(issubclass(STAGES[name], Stage) for name in STAGES)
    assert all(issubclass(STEPS[name], Step) for name in STEPS)


def test_every_name_is_that_of_one_node_class() -> None:
    dict(STAGES), dict(STEPS)  # importing the stages imports the nodes
    nodes = [kind.__name__ for kind in _below(Node) if kind.__module__.startswith("aiostream_data.")]
    named = {*STAGES, *STEPS}
    assert named <= set(nodes)
    assert len([name for name in nodes if name in named]) == len(named)


def test_a_plan_imports_the_stages_that_it_has_and_no_others() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "aiostream_data._engine.calls.rowwise" in found
    for absent in ("device.stage", "_engine.stages.mix", "_engine.sources.files", "_engine.stages.grouping.pack"):
        assert f"aiostream_data.{absent}" not in found


def _below(kind: type) -> set[type]:
    return {kind}.union(*map(_below, kind.__subclasses__()))
