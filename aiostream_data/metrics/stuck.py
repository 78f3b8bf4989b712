"""Find the stage that blocks the consumer, from the current waits of all stages.

The search walks from the consumer toward the sources. The search skips a stage that waits for its own input and has no
work in progress. The first stage that another stage waits for, and that is not skipped, is the stuck stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """State of one running stage at one moment. Durations are in seconds; None means that the stage does not wait.

    Attributes:
        name: Label of the stage, with the label of the dataset that contains the stage.
        place: Plan position of the stage.
        written_at: Source line in the user's code; "" if unknown.
        rows_in: Number of rows received in this run.
        rows_out: Number of rows emitted in this run.
        queued: Number of chunks in the output queue.
        queued_nbytes: Bytes in the output queue.
        wanted_s: Time that the next stage has been waiting for this stage.
        input_s: Time that the stage has been waiting for its input.
        room_s: Time that the stage has been waiting for space in its output queue.
        under_way: Number of rows or worker calls that were started but not emitted yet.
        opens_inputs: True if the stage itself runs its inputs. If ``opens_inputs`` is True, ``input_s`` excludes the
            wait for these inputs.
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
        """Short description of what the stage is doing now."""
        if self.room_s is not None:
            return f"waits for room {self.room_s:.1f} s"
        waits = "" if self.input_s is None else f"waits for input {self.input_s:.1f} s"
        if self.under_way:
            work = f"has {self.under_way:,} under way"
            return f"{work}, {waits}" if waits else work
        return waits or "works"


def find_stuck(stages: Sequence[StageState]) -> StageState | None:
    """Return the stage that blocks the consumer, or None if nothing waits for a stage.

    Args:
        stages: States of all stages, ordered from the sources to the last stage.
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
