"""Error policies for records that a stage cannot process: raise, retry, skip, replace or quarantine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError

RATE_ROWS: Final = 1000
"""Minimum number of rows for ``max_rate``. For fewer rows, the limit is ``max_rate * RATE_ROWS`` records."""

MAX_BACKOFF_S: Final = 30.0
"""Maximum pause between two attempts for a record, in seconds."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the error of the record, which ends the stream. ``Raise`` is the default policy."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Skip and count the record. If ``open`` has a dead-letter log, write the record to the log.

    Args:
        max_count: Maximum number of skipped records; one more raises :class:`~aiostream_data.errors.ErrorBudgetError`.
            A lost file counts as one record, and so does the lost remainder of a file.
        max_rate: Maximum fraction of all records that may be skipped, from 0 to 1. For the first 1,000 records, the
            limit is ``max_rate * 1000`` records.
    """

    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace the record with ``value`` and count the record.

    If ``open`` has a dead-letter log, write the record to the log.

    Args:
        value: Replacement for every failed record. All failed records share this object, so do not modify it.
        max_count, max_rate: Limits for replaced records, as in :class:`Skip`.
    """

    value: Any
    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Skip the record, and write the record to a separate dead-letter log for this stage.

    Args:
        path: Path of the file to which one JSON line per record is appended. The method ``dataset.replay(path)``
            processes the records in this file again.
        max_count, max_rate: Limits for skipped records, as in :class:`Skip`.
    """

    path: str | os.PathLike[str]
    max_count: int | None = None
    max_rate: float | None = None

    def __post_init__(self) -> None:
        log_path("path of Quarantine", self.path)
        _check_budget(self.max_count, self.max_rate)


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry the record, and apply the policy ``then`` if all attempts fail.

    Args:
        times: Maximum number of retries after the first attempt.
        backoff_s: Pause in seconds before the first retry. The pause doubles with each retry, up to 30 seconds.
        then: Policy to apply if the last attempt fails: "raise", "skip", or any policy except ``Retry``.
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
"""Type of an ``on_error`` argument.

None selects the policy of ``open(on_error=...)``. The default policy raises the error.
"""


def policy_of(value: OnError) -> ErrorPolicy:
    """Convert an ``on_error`` argument to an error policy.

    Raises:
        PlanError: The value of ``on_error`` is not a valid policy.
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
    """Convert an ``on_error`` argument of a file source to an error policy.

    Raises:
        PlanError: The value is not a valid policy, or is ``Replace``, because damage may affect an unknown number of
            records.
    """
    policy = policy_of(value)
    if isinstance(policy, Replace) or (isinstance(policy, Retry) and isinstance(policy.then, Replace)):
        raise PlanError(
            "on_error of a source cannot be Replace(...): damage may hide any number of records. Use Skip(...), and "
            "Replace(...) only for functions"
        )
    return policy


def policy_for_sources(policy: OnError) -> OnError:
    """Convert a policy for all stages to the policy for file sources.

    ``Replace`` becomes None, which means that sources raise errors.
    """
    if isinstance(policy, Replace):
        return None
    if isinstance(policy, Retry) and isinstance(policy.then, Replace):
        return Retry(policy.times, policy.backoff_s)
    return policy


def may_drop(value: OnError) -> bool:
    """Return True if a stage with this policy may return fewer rows than it receives."""
    policy = policy_of(value)
    return isinstance(policy_of(policy.then) if isinstance(policy, Retry) else policy, (Skip, Quarantine))


@dataclass(frozen=True, slots=True)
class Handling:
    """Normalized form of an error policy for use in a stage. The object can be pickled if ``value`` can be pickled.

    Attributes:
        kind: Action after the last failed attempt.
        value: Replacement value for the action "replace".
        retries, backoff_s: Maximum number of retries, and the pause in seconds before the first retry.
        max_count, max_rate: Limits for skipped or replaced records; None for no limit.
        path: Path of the stage's separate dead-letter log, or None.
    """

    kind: Literal["raise", "skip", "replace"] = "raise"
    value: Any = None
    retries: int = 0
    backoff_s: float = 0.0
    max_count: int | None = None
    max_rate: float | None = None
    path: str | None = None

    def __hash__(self) -> int:  # without the value, which can be a list or an array
        return hash((self.kind, self.retries, self.backoff_s, self.max_count, self.max_rate, self.path))

    @property
    def interferes(self) -> bool:
        """True if the policy can continue after a failed record; False if it raises at the first failure."""
        return self.kind != "raise" or self.retries > 0

    @property
    def of_given_rows(self) -> Handling:
        """Policy for recomputing rows that were already delivered.

        Delivered rows were not skipped, so "skip" becomes "raise".
        """
        return replace(self, kind="raise") if self.kind == "skip" else self

    def pause_s(self, attempt: int) -> float:
        """Return the seconds to wait before retry number ``attempt``, counted from 0."""
        return min(MAX_BACKOFF_S, self.backoff_s * 2.0**attempt)

    def is_spent(self, failures: int, rows: int) -> bool:
        """Return True if the number of failed records (``failures`` of ``rows``) exceeds a limit."""
        if self.max_count is not None and failures > self.max_count:
            return True
        return self.max_rate is not None and failures > self.max_rate * max(rows, RATE_ROWS)

    @property
    def budget(self) -> str:
        """Text that describes the limits ``max_count`` and ``max_rate``, for an error message."""
        rules = [] if self.max_count is None else [f"max_count={self.max_count}"]
        if self.max_rate is not None:
            first = f"{int(self.max_rate * RATE_ROWS):,} of the first {RATE_ROWS:,}"
            rules.append(f"max_rate={self.max_rate:g} of the records ({first})")
        return " and ".join(rules)


def handling_of(value: OnError) -> Handling:
    """Convert an ``on_error`` argument to a :class:`Handling`."""
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
    """Return the path of a dead-letter log as a string, with ``~`` expanded.

    Raises:
        PlanError: The value is not a valid path. The error message uses ``name`` as the name of the argument.
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
