"""Name the stage that keeps the consumer waiting, from what every stage waits for at this moment.

Walking from the consumer towards the sources: a stage that is waited for, and itself waits for its input with
nothing under way, passes the wait on. The first one that does not is the one that is stuck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """What one running stage does at one moment. Seconds are None where it does not wait.

    Attributes:
        name: Its label, with that of the data set it is in.
        place: Names it in the plan.
        written_at: Where the user wrote it; "" when unknown.
        rows_in, rows_out: What this run of it took in and gave.
        queued, queued_nbytes: Chunks, and bytes, that wait for whoever reads it.
        wanted_s: How long its reader has waited for it.
        input_s: How long it has waited for its input.
        room_s: How long it has waited for its reader to take something.
        under_way: Rows or hops that it has begun and not given.
        opens_inputs: It runs what it reads itself, so that its wait for that does not show in ``input_s``.
    """

    name: str
    place: str = ""
    written_at: str = ""
    rows_in: int = 0
    rows_out: int = 0
    queued: int = 0
    queued_nbytes: int = 0
    wanted_s: float | None = None
    input_s: float | None = None
    room_s: float | None = None
    under_way: int = 0
    opens_inputs: bool = False

    @property
    def sentence(self) -> str:
        """What it does, in a few words."""
        if self.room_s is not None:
            return f"waits for room {self.room_s:.1f} s"
        waits = "" if self.input_s is None else f"waits for input {self.input_s:.1f} s"
        if self.under_way:
            work = f"has {self.under_way:,} under way"
            return f"{work}, {waits}" if waits else work
        return waits or "works"


def find_stuck(stages: Sequence[StageState]) -> StageState | None:
    """Return the stage that keeps the consumer waiting; None when no stage is waited for.

    Args:
        stages: Sources first.
    """
    last: StageState | None = None
    for number in range(len(stages) - 1, -1, -1):
        stage = stages[number]
        if stage.wanted_s is None:
            continue
        last = stage
        if stage.under_way or not _passes_on(stage, stages[:number]):
            return stage
    return last


def _passes_on(stage: StageState, before: Sequence[StageState]) -> bool:
    if stage.input_s is not None:
        return True
    return stage.opens_inputs and any(earlier.wanted_s is not None for earlier in before)
