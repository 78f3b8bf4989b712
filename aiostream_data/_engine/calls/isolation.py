"""Find the row that crashed its worker, timed out or cannot be pickled, and apply the error policy to this row."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from aiostream_data._engine.calls.row_work import Done, HopPart, RowWork, Tally, joined
from aiostream_data._engine.calls.work_place import WorkPlace
from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data.errors import RecordError, RecordTimeoutError, WorkerDiedError
from aiostream_data.executors.base import Outcome
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.collate import collate


def broke_off(outcome: Outcome) -> bool:
    """Return True if a hop (one unit of work) failed outside the user function, so that the failing row is unknown."""
    error = outcome.error
    travelled = not isinstance(error, RecordError) or not error.in_transit
    return isinstance(error, (WorkerDiedError, RecordTimeoutError)) or not travelled


async def alone(place: WorkPlace, work: RowWork, rows: Chunk, timeout_s: float | None, first: Outcome) -> Outcome:
    """Run an aborted hop (unit of work) again, one row and one operator at a time. Return the combined outcome.

    If the hop had a single row and operator and timed out, reuse its outcome ``first`` and do not run the row again.
    """
    singles = [RowWork((part,)) for part in work.parts]
    known = len(rows) == 1 and len(singles) == 1 and isinstance(first.error, RecordTimeoutError)
    dones: list[Done] = []
    for number in range(len(rows)):
        row = rows.slice(number, number + 1)
        outcome = await _one_row(place, singles, row, timeout_s, first if known else None)
        if outcome.error is not None:
            if not dones:
                return outcome
            return _outcome_of(joined(dones, len(singles)).up_to(number, outcome.error))
        dones.append(outcome.value)
    return _outcome_of(joined(dones, len(singles)))


def _outcome_of(done: Done) -> Outcome:
    busy, cpu = (sum(getattr(tally, name) for tally in done.tallies) for name in ("busy_s", "cpu_s"))
    return Outcome(done, None, busy, cpu)


async def _one_row(
    place: WorkPlace, singles: list[RowWork], row: Chunk, timeout_s: float | None, first: Outcome | None
) -> Outcome:
    chunk = row
    tallies: list[Tally] = []
    for single in singles:
        if not len(chunk):
            tallies.append(Tally(0, 0, 0, [], 0, 0.0, 0.0))
            continue
        outcome = first or await place.submit(single, chunk, timeout_s)
        if broke_off(outcome):
            outcome = await _handled(place, single, chunk, timeout_s, outcome)
        if outcome.error is not None:
            return outcome
        done: Done = outcome.value
        if done.failure is not None:
            return Outcome(None, done.failure)
        chunk = done.chunk
        tallies += done.tallies
    kept = None if len(chunk) else np.empty(0, np.int64)
    return Outcome(Done(chunk, chunk_nbytes(chunk), kept, tuple(tallies)))


async def _handled(place: WorkPlace, single: RowWork, row: Chunk, timeout_s: float | None, outcome: Outcome) -> Outcome:
    """Retry a row that makes its hop (unit of work) abort.

    After the last attempt, skip or replace the row, or return the error of the row.
    """
    (part,) = single.parts
    handling = part.user.handling
    retries = 0
    while broke_off(outcome) and retries < handling.retries:
        await asyncio.sleep(handling.pause_s(retries))
        retries += 1
        outcome = await place.submit(single, row, timeout_s)
    if not broke_off(outcome):
        return outcome if outcome.error is not None else _with_retries(outcome, retries)
    error = outcome.error
    assert error is not None
    part.user.note(error, row, 0)
    if handling.kind == "raise":
        return outcome
    return Outcome(_given_up(part, row, error, retries), None, outcome.busy_s, outcome.cpu_s)


def _with_retries(outcome: Outcome, retries: int) -> Outcome:
    done: Done = outcome.value
    tallies = tuple(replace(tally, retries=tally.retries + retries) for tally in done.tallies)
    return replace(outcome, value=replace(done, tallies=tallies))


def _given_up(part: HopPart, row: Chunk, error: BaseException, retries: int) -> Done:
    handling = part.user.handling
    assert handling.kind != "raise"
    failed = Failed.of(error, row, 0, summary(row.element(0)), handling.kind)
    if handling.kind == "skip":
        return Done(row.slice(0, 0), 0, np.empty(0, np.int64), (Tally(1, 0, 0, [failed], retries, 0.0, 0.0),))
    given = _replacement(part, row)
    kept = None if len(given) else np.empty(0, np.int64)
    nbytes = chunk_nbytes(given)
    return Done(given, nbytes, kept, (Tally(1, len(given), nbytes, [failed], retries, 0.0, 0.0),))


def _replacement(part: HopPart, row: Chunk) -> Chunk:
    value = part.user.handling.value
    if part.kind == "filter":
        return row if value else row.slice(0, 0)
    return collate([value], row.ids).with_made_of(row.made_of)
