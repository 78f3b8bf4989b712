"""How many cases of drawn plans are tried, and how long each of them may take.

A case that hangs must end the whole test. pytest-timeout alone does not see to that: it interrupts a test once,
Hypothesis takes that for a case that has failed, and tries it again, and others like it, with no timer left. So every
case has a bound of its own (:func:`ends_within`), whose error Hypothesis does not catch: neither a second try nor
shrinking follows.

Cases that fail in another way are shrunk, but not where ``CI`` is in the environment: there it would take the time of
everything that is still to be tested. The message tells the plan as a program; locally it is found again and shrunk.
``ASD_EXAMPLES=10`` in the environment draws ten times as many cases as a usual run does.
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

TIMES = float(os.environ.get("ASD_EXAMPLES", "1"))
CASE_S = 60.0
"""For one case, which takes a third of a second on a quiet machine."""

_PHASES = [phase for phase in Phase if "CI" not in os.environ or phase not in (Phase.shrink, Phase.explain)]

in_time = pytest.mark.timeout(3 * CASE_S * max(1.0, TIMES))
"""For tests of drawn cases: far enough that a case that hangs is ended by its own bound."""


class CaseHangs(BaseException):
    """A case has not ended in time; no :class:`Exception`, as Hypothesis would go on after one."""


def cases(examples: int) -> settings:
    """Return settings for a test that draws so many cases in a usual run."""
    return settings(
        max_examples=max(1, round(examples * TIMES)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
        phases=_PHASES,
    )


@contextmanager
def ends_within(limit_s: float, *case: Any) -> Iterator[None]:
    """Raise CaseHangs in the main thread, which this must be, if the block has not ended after so many seconds.

    Args:
        case: What is being tried; told with the stacks of all threads.
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
