"""A process finds out which rank it is from the frameworks it has loaded and what launchers left it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from aiostream_data.errors import PlanError, RankError
from aiostream_data.ranks import Ranks, choose_ranks, find, find_ranks


def module(**names: Any) -> ModuleType:
    return cast(ModuleType, SimpleNamespace(**names))


def torch_distributed(rank: int = 3, world_size: int = 16, initialised: bool = True) -> ModuleType:
    return module(
        is_available=lambda: True,
        is_initialized=lambda: initialised,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )


def jax(rank: int = 3, world_size: int = 16, initialised: bool = True) -> ModuleType:
    def started() -> int:
        assert initialised, "asking for the process starts a backend"
        return rank

    return module(
        distributed=SimpleNamespace(is_initialized=lambda: initialised),
        process_index=started,
        process_count=lambda: world_size,
    )


def ray_train(rank: int = 3, world_size: int = 16) -> ModuleType:
    context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world_size)
    return module(get_context=lambda: context)


def no_worker() -> None:
    raise RuntimeError("get_context() can only be called in a worker of a trainer")


def found(environ: Mapping[str, str] | None = None, modules: Mapping[str, ModuleType] | None = None) -> Ranks:
    return find_ranks(environ or {}, modules or {})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8)),
        ({"JAX_PROCESS_INDEX": "3", "JAX_PROCESS_COUNT": "8"}, (3, 8)),
        ({"JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "8"}, (3, 8)),
        ({}, (0, 1)),
        ({"RANK": "", "WORLD_SIZE": " "}, (0, 1)),
    ],
)
def test_every_launcher_is_known_by_its_variables(environ: dict[str, str], expected: tuple[int, int]) -> None:
    ranks = found(environ)
    assert (ranks.rank, ranks.world_size) == expected
    assert all(name in ranks.source for name in environ if ranks.world_size > 1)


@pytest.mark.parametrize(
    "modules", [{"torch.distributed": torch_distributed()}, {"jax": jax()}, {"ray.train": ray_train()}]
)
def test_an_initialised_framework_counts_more_than_variables(modules: dict[str, ModuleType]) -> None:
    ranks = found({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, modules)
    assert (ranks.rank, ranks.world_size) == (3, 16)
    assert ranks.source.split(".")[0] in next(iter(modules))


@pytest.mark.parametrize(
    "modules",
    [
        {"torch.distributed": torch_distributed(initialised=False)},
        {"torch.distributed": module(is_available=lambda: False)},
        {"jax": jax(initialised=False)},
        {"jax": module()},
        {"ray.train": module(get_context=no_worker)},
        {"ray.train": module()},
        {"ray.train": ray_train(0, 1)},
    ],
)
def test_a_framework_that_was_only_loaded_says_nothing(modules: dict[str, ModuleType]) -> None:
    assert (found({}, modules).rank, found({}, modules).world_size) == (0, 1)
    assert found({"RANK": "1", "WORLD_SIZE": "2"}, modules).rank == 1


def test_two_frameworks_that_disagree_are_an_error_that_names_both() -> None:
    with pytest.raises(RankError, match=r"rank 3 of 16 \(torch.distributed\), but rank 1 of 2 \(ray.train\)"):
        found({}, {"torch.distributed": torch_distributed(), "ray.train": ray_train(1, 2)})


def test_two_frameworks_that_agree_are_believed() -> None:
    assert found({}, {"torch.distributed": torch_distributed(), "ray.train": ray_train()}).rank == 3


def test_variables_of_two_launchers_that_disagree_are_an_error_that_names_both() -> None:
    with pytest.raises(RankError, match=r"OMPI_COMM_WORLD_RANK.*SLURM_PROCID"):
        found(
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "8",
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "2",
            }
        )


def test_a_launcher_of_one_process_says_nothing_beside_one_of_several() -> None:
    assert found({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}).rank == 3
    assert found({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}).rank == 1


def test_what_torchrun_says_counts_under_any_launcher_that_started_it() -> None:
    nodes = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    assert found({"RANK": "11", "WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "none", **nodes}).rank == 11


@pytest.mark.parametrize(("given", "missing"), [("RANK", "WORLD_SIZE"), ("PMI_SIZE", "PMI_RANK")])
def test_half_set_variables_are_an_error_that_names_both(given: str, missing: str) -> None:
    with pytest.raises(RankError, match=f"{given} is set, but {missing} is not"):
        found({given: "1"})


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_NTASKS"])
def test_a_slurm_script_that_started_no_tasks_is_one_process(name: str) -> None:
    assert found({name: "0"}).world_size == 1


@pytest.mark.parametrize(("rank", "world_size"), [("a", "8"), ("8", "8"), ("-1", "8"), ("0", "0"), ("1.5", "8")])
def test_variables_that_are_no_rank_are_an_error_that_shows_them(rank: str, world_size: str) -> None:
    with pytest.raises(RankError, match=f"RANK='{rank}', WORLD_SIZE='{world_size}'"):
        found({"RANK": rank, "WORLD_SIZE": world_size})


def test_members_of_a_group_of_replicas_have_the_same_share() -> None:
    assert [Ranks(rank, 6, replicate=2).share for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    assert Ranks(5, 6, replicate=2).shares == 3


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((2, 2, 1), "rank must be below world_size \\(2\\), got 2"),
        ((-1, 2, 1), "rank must be at least 0, got -1"),
        ((0, 0, 1), "world_size must be at least 1, got 0"),
        ((0, 6, 4), "world_size \\(6\\) must be a multiple of replicate, got 4"),
        ((0, 6, 0), "replicate must be at least 1, got 0"),
        ((0.5, 6, 1), "rank must be an integer, got 0.5"),
        ((True, 6, 1), "rank must be an integer, got True"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(numbers: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Ranks(*numbers)


@pytest.mark.parametrize(("rank", "world_size"), [(0, None), (None, 4)])
def test_rank_and_world_size_are_given_both_or_not_at_all(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(PlanError, match="Pass both"):
        choose_ranks(rank, world_size)


def test_what_is_given_counts_more_than_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    ranks = choose_ranks(1, 4, replicate=2)
    assert (ranks.rank, ranks.world_size, ranks.share, ranks.shares) == (1, 4, 0, 2)


def test_what_is_found_is_printed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(find, "_announced", set())
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    for _ in range(3):
        assert choose_ranks(None, None, replicate=4).share == 1
    said = "aiostream_data: rank 7 of 8, in groups of 4 that get the same rows (RANK, WORLD_SIZE)\n"
    assert capsys.readouterr().err == said


def test_ranks_without_a_seed_all_use_the_same_one() -> None:
    assert Ranks(1, 4).root_seed(None) == Ranks(2, 4).root_seed(None) is not None
    assert Ranks(1, 4).root_seed(7) == 7
    assert Ranks(0, 1).root_seed(None) is None
