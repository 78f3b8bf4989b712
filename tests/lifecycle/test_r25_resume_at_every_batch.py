"""R25: every data set resumes after each of its elements: none, the last, in a later epoch, right after a load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from resume_plans import CASES, draws, numbers, write_files

from aiostream_data import Dataset
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import ResumeReport, resumes_everywhere


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("resume"))


def resumes(name: str, folder: Path, **options: Any) -> ResumeReport:
    case = CASES[name]
    return resumes_everywhere(
        case.make(folder),
        open_options={**(case.options or {}), **options},
        every=case.every,
        unordered=not case.ordered,
    )


@pytest.mark.parametrize("name", CASES)
def test_r25_resume_at_every_batch(name: str, folder: Path) -> None:
    report = resumes(name, folder, seed=7)
    assert report.slowest_state_s < 1


@pytest.mark.parametrize("name", ["shuffle and repeat", "training", "map with rng", "any order"])
def test_r25_resume_in_a_later_epoch_with_a_seed_that_nobody_gave(name: str, folder: Path) -> None:
    resumes(name, folder, epoch=1)


def test_r25_resume_of_a_data_set_that_never_ends() -> None:
    report = resumes_everywhere(draws(7).shuffle(4).repeat().batch(3), open_options={"seed": 1}, max_elements=15)
    assert report.elements == 15


def test_r25_the_state_at_the_end_leaves_nothing() -> None:
    dataset = numbers().shuffle(5).batch(4)
    with dataset.open(seed=1) as loader:
        assert len(list(loader)) == 3
        state = loader.state_dict()
    with dataset.open(state=state) as loader:
        assert list(loader) == []


def test_r25_an_async_loop_saves_and_resumes_like_a_plain_one() -> None:
    dataset: Dataset[Any] = draws().shuffle(5).batch(3)

    async def first_two() -> tuple[list[Any], dict[str, Any]]:
        elements = []
        async with dataset.open(seed=3) as loader:
            async for element in loader:
                elements.append(element)
                if len(elements) == 2:
                    return elements, loader.state_dict()
        raise AssertionError("it ended before two batches")

    async def rest(state: dict[str, Any]) -> list[Any]:
        async with dataset.open(state=state) as loader:
            return [element async for element in loader]

    elements, state = asyncio.run(first_two())
    with dataset.open(seed=3) as loader:
        assert same([*elements, *asyncio.run(rest(state))], list(loader))
