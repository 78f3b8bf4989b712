"""What becomes of a record on which a stage fails: raise, retry, skip, replace, quarantine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError

RATE_ROWS: Final = 1000
"""A rate counts from so many rows on: the first ones share the allowance of this many."""

MAX_BACKOFF_S: Final = 30.0
"""Longest pause between two attempts."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The error ends the stream. The default."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the record out, count it, and note it in the dead-letter log, if ``open`` was given one.

    Args:
        max_count: Records that may be left out; one more raises :class:`~aiostream_data.errors.ErrorBudgetError`. A
            file that a source loses, or the rest of one, counts as one record.
        max_rate: Share of all records, 0 to 1, that may be left out. The first 1,000 share one allowance.
    """

    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Replace:
    """Give ``value`` in the record's place, count it, and note it as :class:`Skip` does.

    Args:
        value: The same object every time; do not change it afterwards.
        max_count, max_rate: As in :class:`Skip`.
    """

    value: Any
    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Leave the record out, and note it in a dead-letter log of the stage's own.

    Args:
        path: A file of JSON lines, one per record; appended to. ``dataset.replay(path)`` runs them again.
        max_count, max_rate: As in :class:`Skip`.
    """

    path: str | os.PathLike[str]
    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        log_path("path of Quarantine", self.path)
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again, and then do what ``then`` says.

    Args:
        times: Further attempts after the first.
        backoff_s: Seconds before the second attempt; doubled before each further one, 30 at most.
        then: "raise", "skip", or another policy than Retry.
    """

    times: int = 3
    backoff_s: float = 0.1
    then: ErrorPolicy | Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1:
            raise PlanError(f"times of Retry must be an integer of at least 1, got {self.times!r}")
        is_number = isinstance(self.backoff_s, (int, float)) and not isinstance(self.backoff_s, bool)
        if not is_number or not 0 <= self.backoff_s <= MAX_BACKOFF_S:
            raise PlanError(
                f"backoff_s of Retry must be between 0 and {MAX_BACKOFF_S:g} seconds, got {self.backoff_s!r}"
            )
        if isinstance(policy_of(self.then), Retry):
            raise PlanError("then of Retry must not be a Retry")


ErrorPolicy: TypeAlias = Raise | Skip | Replace | Quarantine | Retry
OnError: TypeAlias = ErrorPolicy | Literal["raise", "skip"] | None
"""What users give; None leaves it to ``open(on_error=...)``, whose default is to raise."""


def policy_of(value: OnError) -> ErrorPolicy:
    """Return the policy that a user's argument stands for.

    Raises:
        PlanError: It stands for none.
    """
    if value is None or (isinstance(value, str) and value == "raise"):
        return Raise()
    if isinstance(value, str) and value == "skip":
        return Skip()
    if isinstance(value, (Raise, Skip, Replace, Quarantine, Retry)):
        return value
    raise PlanError(
        f"on_error must be 'raise', 'skip', Retry(...), Skip(...), Replace(...) or Quarantine(...), got {shown(value)}"
    )


def source_policy_of(value: OnError) -> ErrorPolicy:
    """Return the policy that a user's argument stands for, given to a source of files.

    Raises:
        PlanError: It stands for none, or gives a value for a record that nobody knows.
    """
    policy = policy_of(value)
    if isinstance(policy, Replace) or (isinstance(policy, Retry) and isinstance(policy.then, Replace)):
        raise PlanError(
            "on_error of a source cannot be Replace(...): damage may hide any number of records; use Skip(...), and "
            "Replace(...) for functions"
        )
    return policy


def policy_for_sources(policy: OnError) -> OnError:
    """Return what a policy for all stages means for sources of files: without a value for a record, they raise."""
    if isinstance(policy, Replace):
        return None
    if isinstance(policy, Retry) and isinstance(policy.then, Replace):
        return Retry(policy.times, policy.backoff_s)
    return policy


def may_drop(value: OnError) -> bool:
    """Return True if a stage with this policy may give fewer rows than it takes."""
    policy = policy_of(value)
    return isinstance(policy_of(policy.then) if isinstance(policy, Retry) else policy, (Skip, Quarantine))


@dataclass(frozen=True, slots=True)
class Handling:
    """A policy, resolved for the stage that applies it; picklable when its value is.

    Attributes:
        kind: What happens after the last attempt.
        value: For "replace".
        retries, backoff_s: Further attempts, and the pause before the first of them.
        max_count, max_rate: How many records may be skipped or replaced; None for any number.
        path: Of a dead-letter log of its own, or None.
    """

    kind: Literal["raise", "skip", "replace"] = "raise"
    value: Any = None
    retries: int = 0
    backoff_s: float = 0.0
    max_count: int | None = None
    max_rate: float | None = None
    path: str | None = None

    @property
    def interferes(self) -> bool:
        """Whether anything but raising at once may happen."""
        return self.kind != "raise" or self.retries > 0

    @property
    def of_given_rows(self) -> Handling:
        """How rows are made again that were given: none of them was skipped, so an error after the last attempt raises.

        All else is as it was: the attempts, and the value in a row's place.
        """
        return replace(self, kind="raise") if self.kind == "skip" else self

    def pause_s(self, attempt: int) -> float:
        """Return the seconds to wait before further attempt number ``attempt``, from 0."""
        return min(MAX_BACKOFF_S, self.backoff_s * 2.0**attempt)

    def is_spent(self, failures: int, rows: int) -> bool:
        """Return True if so many failed records among so many are more than was allowed."""
        if self.max_count is not None and failures > self.max_count:
            return True
        return self.max_rate is not None and failures > self.max_rate * max(rows, RATE_ROWS)

    @property
    def budget(self) -> str:
        """Describe the allowance of :meth:`is_spent`, for a message."""
        rules = [] if self.max_count is None else [f"max_count={self.max_count}"]
        if self.max_rate is not None:
            first = f"{int(self.max_rate * RATE_ROWS):,} of the first {RATE_ROWS:,}"
            rules.append(f"max_rate={self.max_rate:g} of the records ({first})")
        return " and ".join(rules)


def handling_of(value: OnError) -> Handling:
    """Return how a policy is carried out."""
    policy = policy_of(value)
    if isinstance(policy, Raise):
        return Handling()
    if isinstance(policy, Retry):
        then = handling_of(policy.then)
        return Handling(then.kind, then.value, policy.times, policy.backoff_s, then.max_count, then.max_rate, then.path)
    count, rate = policy.max_count, policy.max_rate
    if isinstance(policy, Replace):
        return Handling("replace", policy.value, max_count=count, max_rate=rate)
    path = log_path("path of Quarantine", policy.path) if isinstance(policy, Quarantine) else None
    return Handling("skip", max_count=count, max_rate=rate, path=path)


def log_path(name: str, path: Any) -> str:
    """Return the path of a dead-letter log as text.

    Raises:
        PlanError: It is none; says under which ``name`` it was given.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise PlanError(f"{name} must be the path of a file, got {path!r}") from None
    if not text or "\0" in text or "://" in text:
        raise PlanError(f"{name} must be the path of a file, got {text!r}")
    return os.path.expanduser(text)


def _check_budget(max_count: int | None, max_rate: float | None) -> None:
    if max_count is not None and (isinstance(max_count, bool) or not isinstance(max_count, int) or max_count < 0):
        raise PlanError(f"max_count must be an integer of at least 0, or None, got {max_count!r}")
    if max_rate is None:
        return
    if isinstance(max_rate, bool) or not isinstance(max_rate, (int, float)) or not isfinite(max_rate):
        raise PlanError(f"max_rate must be a share between 0 and 1, or None, got {max_rate!r}")
    if not 0 <= max_rate <= 1:
        raise PlanError(f"max_rate must be a share between 0 and 1, got {max_rate!r}")
