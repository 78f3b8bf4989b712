"""The byte budget: who waits, who passes, and that every byte is given back once."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings

import pytest
from event_order import run, settle

from aiostream_data._engine.memory.budget import ADMITTED, FILLED, Budget
from aiostream_data._engine.memory.memory_limit import default_limit, parse_nbytes

LIMIT = 1_000
ROOM = int(LIMIT * ADMITTED)


def test_admissions_wait_while_the_room_of_sources_is_taken() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        first = await budget.admit(ROOM)
        second = asyncio.create_task(budget.admit(1))
        await settle()
        assert not second.done()
        first.end()
        charge = await second
        assert (budget.used, charge.nbytes) == (1, 1)
        assert budget.wait_s > 0.0

    run(case())


def test_a_charge_never_waits_and_the_peak_is_remembered() -> None:
    budget = Budget(LIMIT)
    held = [budget.charge(800), budget.charge(800)]
    assert budget.used == 1_600
    held.clear()
    assert (budget.used, budget.peak) == (0, 1_600)


def test_a_charge_ends_with_its_last_reference_and_only_once() -> None:
    budget = Budget(LIMIT)
    charge = budget.charge(10)
    other = charge
    del charge
    gc.collect()
    assert budget.used == 10
    other.end()
    other.end()
    del other
    gc.collect()
    assert budget.used == 0


def test_a_charge_can_change_its_size() -> None:
    budget = Budget(LIMIT)
    charge = budget.charge(10)
    charge.resize(30)
    assert budget.used == 30
    charge.resize(5)
    assert (budget.used, budget.peak) == (5, 30)
    charge.end()


def test_more_than_the_limit_passes_alone_with_one_warning() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            large = await budget.admit(3 * LIMIT)
            budget.charge(3 * LIMIT).end()
        assert [str(warning.message).partition(": ")[2].split()[0] for warning in caught] == ["3000"]
        small = asyncio.create_task(budget.admit(1))
        await settle()
        assert not small.done()
        large.end()
        (await small).end()

    run(case())


def test_an_admission_that_becomes_urgent_passes_over_the_limit_when_poked() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        held = await budget.admit(ROOM)
        urgent = False
        waiting = asyncio.create_task(budget.admit(500, lambda: urgent))
        patient = asyncio.create_task(budget.admit(500))
        await settle()
        urgent = True
        budget.poke()
        (await waiting).end()
        assert not patient.done()
        held.end()
        (await patient).end()

    run(case())


def test_stages_begin_nothing_more_when_three_quarters_are_on_their_way() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        on_its_way = budget.charge(int(FILLED * LIMIT) - 10)
        assert await budget.until_fits(10, lambda: False)
        waiting = asyncio.create_task(budget.until_fits(11, lambda: False))
        await settle()
        assert not waiting.done()
        before, more = budget.is_full, budget.charge(11)
        assert (before, budget.is_full) == (False, True)
        more.end()
        on_its_way.end()
        assert await waiting

    run(case())


def test_an_eighth_may_be_on_its_way_beside_a_buffer_that_keeps_nearly_everything() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        kept, on_its_way = budget.charge(LIMIT - 10, "shuffle"), budget.charge(100)
        assert (budget.flowing, budget.is_full) == (100, False)
        assert await budget.until_fits(25, lambda: False)
        waiting = asyncio.create_task(budget.until_fits(26, lambda: False))
        await settle()
        assert not waiting.done()
        on_its_way.resize(99)
        assert await waiting
        kept.end()

    run(case())


def test_what_sources_leave_free_for_one_huge_record_comes_back_after_it() -> None:
    budget = Budget(LIMIT)
    budget.leave_free(10 * LIMIT)
    assert budget.admitted_nbytes == LIMIT // 8
    for _ in range(500):
        budget.leave_free(1)
    assert budget.admitted_nbytes == ROOM


def test_room_made_by_another_thread_wakes_who_waits() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        held = [await budget.admit(ROOM)]
        waiting = asyncio.create_task(budget.admit(1))
        await settle()
        thread = threading.Thread(target=held.clear)
        thread.start()
        (await waiting).end()
        thread.join()

    run(case())


def test_a_cancelled_admission_takes_nothing() -> None:
    async def case() -> None:
        budget = Budget(LIMIT)
        held = await budget.admit(ROOM)
        waiting = asyncio.create_task(budget.admit(1))
        await settle()
        waiting.cancel()
        await settle()
        held.end()
        await settle()
        assert budget.used == 0

    run(case())


def test_charges_from_many_threads_add_up_to_nothing() -> None:
    budget = Budget(LIMIT)

    def churn() -> None:
        for number in range(2_000):
            nbytes = number % 500
            budget.charge(nbytes).resize(nbytes // 2)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.used == 0


def test_a_charge_may_end_after_its_loop_was_closed() -> None:
    async def admit(budget: Budget) -> list[object]:
        charge = await budget.admit(ROOM)
        waiting = asyncio.create_task(budget.admit(1))
        await settle()
        waiting.cancel()
        return [charge]

    budget = Budget(LIMIT)
    asyncio.run(admit(budget)).clear()
    assert budget.used == 0


@pytest.mark.parametrize(
    ("text", "nbytes"), [(7, 7), ("256MB", 256 << 20), ("1.5 GiB", 3 << 29), ("10k", 10 << 10), ("2T", 2 << 40)]
)
def test_a_memory_limit_is_a_number_or_a_text(text: int | str, nbytes: int) -> None:
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize("wrong", ["", "many", "-1MB", 0, "0", True, "MB"])
def test_a_memory_limit_that_makes_no_sense_is_refused(wrong: int | str) -> None:
    with pytest.raises(ValueError, match="memory limit must be"):
        parse_nbytes(wrong)


def test_the_default_limit_is_at_least_64_mib() -> None:
    assert default_limit() >= 64 << 20
