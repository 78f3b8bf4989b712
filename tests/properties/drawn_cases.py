"""How many cases of drawn plans are tried, and how long each of them may take.

A hanging case must end the whole test. pytest-timeout alone cannot do that: it interrupts a test once, and Hypothesis
then tries the case again without a time limit. Therefore each case has its own limit (:func:`ends_within`), whose error
Hypothesis does not catch.

Hypothesis shrinks other failing cases, except where ``CI`` is set in the environment, because shrinking is slow there.
The message prints the plan as a program, so that the case can be repeated and shrunk locally.

``make test`` runs a seventh of the cases that a test names. ``ASD_EXAMPLES=10`` runs ten times as many as it names.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

TIMES = float(os.environ.get("ASD_EXAMPLES", "0.15"))
"""Fraction of the named cases to run."""

CASE_S = 60.0
"""Time limit of one case, in seconds; a case takes about 0.3 s on an idle machine."""

_PHASES = [phase for phase in Phase if "CI" not in os.environ or phase not in (Phase.shrink, Phase.explain)]

in_time = pytest.mark.timeout(3 * CASE_S * max(1.0, TIMES))
"""Time limit of a test of drawn cases: high enough that a hanging case exceeds its own limit first."""


class CaseHangs(BaseException):
    """A case exceeded its time limit. Not an :class:`Exception`, because Hypothesis would catch it and continue."""


def cases(examples: int) -> settings:
    """Return Hypothesis settings for ``examples`` named cases."""
    return settings(
        max_examples=max(1, round(examples * TIMES)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
        phases=_PHASES,
    )


@contextmanager
def ends_within(limit_s: float, *case: Any) -> Iterator[None]:
    """Raise CaseHangs in the main thread if the block runs longer than ``limit_s``. Call it on the main thread.

    Args:
        case: Description of the case, printed with the stacks of all threads.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise CaseHangs(f"not ended after {limit_s:g} s: {', '.join(map(repr, case))}\n{_stacks()}")

    before = signal.signal(signal.SIGUSR1, interrupt)  # pytest-timeout has the alarm
    timer = threading.Timer(limit_s, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = sys._current_frames().items()
    return "\n".join(f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(top))}" for ident, top in stacks)
