"""Merge rows from several inputs.

A stream of choices selects the input of each row, as in tf.data's ``choose_from_datasets``.

How this works. The choices form an additional input stream, with chunks of any size. The slot number of the choice
stream is ``inputs``, the number of the other inputs. If a choice selects an exhausted input, the order ends or skips
that choice, depending on ``stop``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import ChoiceError
from aiostream_data.transforms.interleave import FINISHED, NOTHING, MergeStep, WaitingStream
from aiostream_data.transforms.loaded_rows import Stock
from aiostream_data.weights import Stop


class ChoosePlace(NamedTuple):
    """State of a choice order before a step, with the choices of the step.

    The state after each row of the step follows from this state and the choices.

    Attributes:
        given: int64, number of rows emitted so far from each input.
        dead: Inputs that the order has found to be exhausted.
        which: int32, number of the input of each row in the step.
        spent: int64, number of choices used before the step, and then after each row of the step.
    """

    given: NDArray[np.int64]
    dead: tuple[int, ...]
    which: NDArray[np.int32]
    spent: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChooseStep(MergeStep):
    """Step of a choice order, with the state before the step."""

    place: ChoosePlace


class ChooseOrder:
    """Order of ``choose_from``. Resumable; does no I/O. The order also ends when the choice stream ends.

    Args:
        inputs: Number of input streams to choose from.
        stop: "first" ends the order when a chosen input is exhausted (tf.data's ``stop_on_empty_dataset=True``). "all"
            skips choices of exhausted inputs, and ends the order when all inputs are exhausted.

    Attributes:
        wrong: Error of a choice that is not a valid input number. When the order requests more choices, it has followed
            all choices before the wrong one; raise the error then.
    """

    def __init__(self, inputs: int, stop: Stop = "first") -> None:
        self.inputs = inputs
        self.stop = stop
        self.stock = Stock(inputs)
        self._alive = np.ones(inputs, bool)
        self._choices = np.empty(0, np.int32)
        self._numbers = np.empty(0, np.int64)  # number of each remaining choice in the choice stream
        self._followed = 0
        self._loaded = 0
        self._no_more_choices = False
        self.wrong: ChoiceError | None = None

    def load(self, slot: int, rows: int) -> None:
        """Set the number of rows in the next chunk of input ``slot``.

        All rows of the previous chunk must have been emitted.
        """
        self.stock.load(slot, rows)

    def choose(self, choices: NDArray[np.int64]) -> None:
        """Set the choices (input numbers) of the next rows. All previous choices must have been used.

        If a choice is not a valid input number, the order drops this choice and all later choices, and sets ``wrong``.
        """
        if self._followed < len(self._choices):
            raise ValueError(f"{len(self._choices) - self._followed} choices are left")
        wrong = np.flatnonzero((choices < 0) | (choices >= self.inputs))
        if len(wrong):
            number, found = self._loaded + int(wrong[0]), choices[wrong[0]]
            self.wrong = ChoiceError(
                f"choice {number} of choose_from() must be the index of a dataset, 0 to {self.inputs - 1}, got {found}"
            )
            choices = choices[: wrong[0]]
        self._choices = choices.astype(np.int32)
        self._numbers = np.arange(self._loaded, self._loaded + len(choices))
        self._loaded += len(choices)
        self._followed = 0
        self._pass_over_dead()

    def ended(self, slot: int) -> None:
        """Mark input ``slot`` as ended; slot ``inputs`` is the stream of choices."""
        if slot == self.inputs:
            self._no_more_choices = True
        else:
            self.stock.ended(slot)

    def upcoming(self, rows: int) -> NDArray[np.int32]:
        """Return the inputs of the next rows, as far as their choices are known, at most of ``rows`` rows."""
        return self._choices[self._followed : self._followed + rows]

    def running_low(self, rows: int) -> NDArray[np.bool_]:
        """Return a mask of the inputs that have emitted half of their chunk, or run out of rows in the next ``rows``.

        Choices that have not arrived do not count, nor do inputs that have not loaded a chunk.
        """
        return self.stock.is_low(np.bincount(self.upcoming(rows), minlength=self.inputs))

    def advance(self, max_rows: int) -> ChooseStep:
        """Return the next step, which has at most ``max_rows`` rows from loaded chunks.

        The rows of a returned step count as emitted. A step that ends with ``NOTHING`` can have any number of rows. A
        step that ends with ``ROWS`` for slot ``inputs`` requests more choices.
        """
        place = self._place()
        part = slice(self._followed, self._followed + max(0, max_rows))
        choices = self._choices[part]
        rows = self.stock.follow(choices)
        which = choices[: len(rows)]
        spent = np.append(place.spent, self._numbers[part][: len(rows)] + 1)
        self._followed += len(rows)
        if len(rows) < len(choices):
            waiting = self._without_rows(int(choices[len(rows)]))
        elif self._followed < len(self._choices):
            waiting = NOTHING
        else:
            over = (self._no_more_choices and self.wrong is None) or not self._alive.any()
            waiting = FINISHED if over else WaitingStream.rows(self.inputs)
        return ChooseStep(which, rows, waiting, place._replace(which=which, spent=spent))

    def _without_rows(self, slot: int) -> WaitingStream:
        """Decide how to continue when input ``slot`` was chosen but no row of this input is loaded."""
        if not self.stock.has_ended[slot]:
            return WaitingStream.rows(slot)
        if self.stop == "first":
            return FINISHED
        self._alive[slot] = False
        self._pass_over_dead()
        return NOTHING

    def _pass_over_dead(self) -> None:
        """Skip the remaining choices that select exhausted inputs."""
        rest = slice(self._followed, None)
        kept = self._alive[self._choices[rest]]
        self._choices = self._choices[rest][kept]
        self._numbers = self._numbers[rest][kept]
        self._followed = 0

    def _place(self) -> ChoosePlace:
        left = self._numbers[self._followed : self._followed + 1]
        spent = left if len(left) else np.array([self._loaded])
        return ChoosePlace(self.stock.given, tuple(np.flatnonzero(~self._alive).tolist()), self._choices[:0], spent)

    def state(self) -> dict[str, Any]:
        """Return the current position as JSON-compatible data; see :meth:`state_at`."""
        return self.state_at(self._place(), 0)

    def state_at(self, place: ChoosePlace, rows: int) -> dict[str, Any]:
        """Return the position after the first ``rows`` rows of a step as JSON-compatible data.

        Any thread may call this method.

        In the state, ``given`` counts the rows emitted from each input, and ``spent`` counts the used choices. When a
        run resumes, each input starts at ``given`` and the choice stream at ``spent``.
        """
        given = place.given + np.bincount(place.which[:rows], minlength=self.inputs)
        return {"given": given.tolist(), "spent": int(place.spent[rows]), "dead": list(place.dead)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position saved by :meth:`state`, with no rows and no choices loaded."""
        self.stock.restore(state["given"])
        self._alive[:] = True
        self._alive[state["dead"]] = False
        self._choices, self._numbers = np.empty(0, np.int32), np.empty(0, np.int64)
        self._followed, self._loaded, self._no_more_choices = 0, state["spent"], False
        self.wrong = None
