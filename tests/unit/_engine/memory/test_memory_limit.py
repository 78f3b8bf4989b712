"""The default memory limit: a quarter of what the machine or a cgroup allows, whatever the files of it say."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiostream_data._engine.memory import memory_limit
from aiostream_data._engine.memory.memory_limit import FALLBACK_LIMIT, default_limit, parse_nbytes

GIB = 1 << 30


class Machine:
    """Files of cgroups in a folder, and an amount of memory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.memory: int | None = 64 * GIB
        monkeypatch.setattr(memory_limit, "CGROUPS", folder)
        monkeypatch.setattr(memory_limit, "OWN_CGROUPS", folder / "own")
        monkeypatch.setattr(memory_limit, "_physical_memory", lambda: self.memory)

    def say(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_without_cgroups_it_is_a_quarter_of_the_memory(machine: Machine) -> None:
    assert default_limit() == 16 * GIB


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        ("memory.max", f"{8 * GIB}\n", 2 * GIB),
        ("memory/memory.limit_in_bytes", f"{8 * GIB}\n", 2 * GIB),
        ("memory.max", "max\n", 16 * GIB),
        ("memory.max", "0\n", 16 * GIB),
        ("memory.max", "", 16 * GIB),
        ("memory.max", "-1\n", 16 * GIB),
        ("memory.max", f"{1 << 50}\n", 16 * GIB),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", 16 * GIB),
        ("memory.max", f"{100 << 20}\n", 64 << 20),
    ],
)
def test_what_the_root_cgroup_says_counts_where_it_is_less(
    machine: Machine, version: str, said: str, expected: int
) -> None:
    machine.say(version, said)
    assert default_limit() == expected


def test_the_least_limit_of_the_own_cgroup_and_those_above_it_counts(machine: Machine) -> None:
    machine.say("own", "0::/batch.slice/job.scope/step\n")
    machine.say("memory.max", "max")
    machine.say("batch.slice/memory.max", str(32 * GIB))
    machine.say("batch.slice/job.scope/memory.max", str(4 * GIB))
    machine.say("batch.slice/job.scope/step/memory.max", "max")
    assert default_limit() == 1 * GIB


def test_version_one_names_the_cgroup_of_the_memory_controller(machine: Machine) -> None:
    machine.say("own", "9:cpu,cpuacct:/other\n4:memory,hugetlb:/docker/abc\n0::/\n")
    machine.say("memory/docker/abc/memory.limit_in_bytes", str(12 * GIB))
    machine.say("memory/other/memory.limit_in_bytes", str(1 * GIB))
    assert default_limit() == 3 * GIB


def test_where_nothing_is_known_there_is_a_fixed_limit(machine: Machine) -> None:
    machine.memory = None
    assert default_limit() == FALLBACK_LIMIT // 4


@pytest.mark.parametrize("wrong", ["inf", "nan", "1e400", float("nan")])
def test_a_limit_without_an_end_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="memory limit must be"):
        parse_nbytes(wrong)
