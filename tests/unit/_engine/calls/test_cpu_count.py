"""The number of CPUs: the affinity of the process, or the quota of a cgroup where that is less."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from aiostream_data._engine.calls import cpu_count as cpu_count_module
from aiostream_data._engine.calls.cpu_count import cgroup_cpus, cpu_count
from aiostream_data._engine.memory.cgroups import limit_files

AFFINITY = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Tree:
    """A directory of cgroup files, laid out as under ``/sys/fs/cgroup``."""

    def __init__(self, folder: Path) -> None:
        self.mounted = folder / "cgroup"
        self.own = folder / "own"

    def write(self, path: str, text: str) -> None:
        file = self.mounted / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_v1(self, place: str, quota: int, period: int = 100_000) -> None:
        self.write(f"{place}/cpu.cfs_quota_us", f"{quota}\n")
        self.write(f"{place}/cpu.cfs_period_us", f"{period}\n")

    @property
    def quota(self) -> int | None:
        return cgroup_cpus(self.mounted, self.own)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_cgroups_the_affinity_counts(tree: Tree) -> None:
    assert tree.quota is None
    assert cpu_count(tree.mounted, tree.own) == AFFINITY


def test_a_quota_below_the_affinity_counts(tree: Tree) -> None:
    tree.write("cpu.max", "50000 100000\n")
    assert cpu_count(tree.mounted, tree.own) == 1


def test_a_quota_above_the_affinity_does_not_count(tree: Tree) -> None:
    tree.write("cpu.max", f"{(AFFINITY + 7) * 100_000} 100000\n")
    assert cpu_count(tree.mounted, tree.own) == AFFINITY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # a quota of 1.5 CPUs keeps two threads busy
        ("100001 100000\n", 2),
        ("1000 100000\n", 1),
        ("25000 12500", 2),
        ("max 100000\n", None),
        ("max\n", None),
        ("", None),
        ("0 100000\n", None),
        ("100000 0\n", None),
        ("-1 100000\n", None),
        ("1e5 1e5\n", None),
        ("200000\n", None),
        ("200000 100000 3\n", None),
    ],
)
def test_version_two_states_quota_and_period_in_one_file(tree: Tree, text: str, expected: int | None) -> None:
    tree.write("cpu.max", text)
    assert tree.quota == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [(200_000, 100_000, 2), (250_000, 100_000, 3), (1, 100_000, 1), (-1, 100_000, None), (0, 100_000, None)],
)
def test_version_one_states_them_in_two_files(tree: Tree, quota: int, period: int, expected: int | None) -> None:
    tree.write_v1("cpu", quota, period)
    assert tree.quota == expected


def test_a_quota_of_version_one_without_its_period_does_not_count(tree: Tree) -> None:
    tree.write("cpu/cpu.cfs_quota_us", "100000\n")
    assert tree.quota is None


def test_the_smallest_quota_of_the_own_cgroup_and_those_above_it_counts(tree: Tree) -> None:
    tree.own.write_text("0::/kubepods.slice/pod.slice/container\n")
    tree.write("kubepods.slice/cpu.max", "6400000 100000")
    tree.write("kubepods.slice/pod.slice/cpu.max", "350000 100000")
    tree.write("kubepods.slice/pod.slice/container/cpu.max", "max 100000")
    tree.write("other.slice/cpu.max", "100000 100000")
    assert tree.quota == 4


def test_version_one_names_the_cgroup_of_the_cpu_controller(tree: Tree) -> None:
    tree.own.write_text("9:memory:/other\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/third\n")
    tree.write_v1("cpu/docker/abc", 300_000)
    tree.write_v1("cpu/other", 100_000)
    tree.write_v1("cpu/third", 100_000)
    assert tree.quota == 3


def test_version_one_may_be_mounted_under_the_names_of_all_its_controllers(tree: Tree) -> None:
    tree.own.write_text("4:cpu,cpuacct:/docker/abc\n")
    tree.write_v1("cpu,cpuacct/docker/abc", 500_000)
    assert tree.quota == 5
    tree.write_v1("cpu,cpuacct", 200_000)
    assert tree.quota == 2


def test_both_versions_mounted_together_are_looked_through(tree: Tree) -> None:
    tree.own.write_text("1:cpu:/v1\n0::/user.slice\n")
    tree.write_v1("cpu/v1", 800_000)
    tree.write("unified/user.slice/cpu.max", "700000 100000")
    assert tree.quota == 7


@pytest.mark.parametrize("own", ["0::/../../outside\n", "nonsense\n::\n\n", "0:/x\n", "\x00\n"])
def test_a_line_that_names_no_cgroup_below_the_mount_is_passed_over(tree: Tree, own: str) -> None:
    tree.own.write_text(own)
    tree.write("cpu.max", "300000 100000")
    (tree.mounted.parent / "outside").mkdir()
    (tree.mounted.parent / "outside" / "cpu.max").write_text("100000 100000")
    assert tree.quota == 3
    assert not any(".." in file.parts for file in limit_files(own, "cpu", "cpu.cfs_quota_us", "cpu.max"))


def test_files_that_cannot_be_read_do_not_count(tree: Tree) -> None:
    (tree.mounted / "cpu.max").mkdir(parents=True)
    tree.mounted.joinpath("unified").mkdir()
    tree.mounted.joinpath("unified", "cpu.max").write_bytes(b"\xff\xfe 1")
    assert tree.quota is None


def test_no_other_module_counts_cpus() -> None:
    package = Path(cpu_count_module.__file__).parents[2]
    counts = re.compile(r"os\.(cpu_count|process_cpu_count|sched_getaffinity)|multiprocessing\.cpu_count")
    assert [path.name for path in package.rglob("*.py") if counts.search(path.read_text())] == ["cpu_count.py"]
