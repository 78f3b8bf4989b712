"""Elements that are passed over, and rows that are blocked: what a user asks for besides the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiostream_data.arguments import integer, several, shown
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.plan.blocking import Blocked

Span = tuple[int, int]


@dataclass(frozen=True)
class Steering:
    """What is left out of a stream.

    Attributes:
        skip: Elements ``a`` (included) to ``b`` (excluded) that are read and not given, counted from the stream's
            very beginning; ascending, apart from each other.
        blocked: Rows and shards that are not given.
    """

    skip: tuple[Span, ...] = ()
    blocked: Blocked = field(default_factory=Blocked)

    @classmethod
    def of(cls, skip: Iterable[Span] = (), block: Iterable[Any] = ()) -> Self:
        """Return what the arguments ask for.

        Raises:
            PlanError: A span is not a pair of numbers, the first of which is the smaller one, or an entry of
                ``block`` is nothing that can be blocked.
        """
        return cls(
            _joined([_span(entry) for entry in several("skip", skip, "pairs of numbers (first, stop)")]),
            Blocked.of(block),
        )

    def __or__(self, other: Steering) -> Steering:
        return Steering(_joined([*self.skip, *other.skip]), self.blocked | other.blocked)

    def kept(self, first: int, count: int) -> list[Span]:
        """Return which of ``count`` elements, the first of number ``first``, are given: spans counted from 0."""
        kept: list[Span] = []
        start, stop = first, first + count
        for left, right in self.skip:
            if right <= start or left >= stop:
                continue
            if left > start:
                kept.append((start - first, left - first))
            start = max(start, right)
        if start < stop:
            kept.append((start - first, stop - first))
        return kept

    def as_dict(self) -> dict[str, Any] | None:
        """Return it as plain data; None when it asks for nothing."""
        if not self.skip and not self.blocked:
            return None
        return {"skip": [list(span) for span in self.skip], **self.blocked.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Self:
        """Return what :meth:`as_dict` was called on.

        Raises:
            StateMismatchError: It is damaged.
        """
        if values is None:
            return cls()
        try:
            return cls(_joined([_span(entry) for entry in values["skip"]]), Blocked.from_dict(values))
        except (KeyError, TypeError, ValueError) as error:
            raise StateMismatchError([f"what it leaves out is damaged: {error}"]) from None


def _span(entry: Any) -> Span:
    if not isinstance(entry, (tuple, list)) or len(entry) != 2:
        raise PlanError(f"elements to skip are given as (first, stop), got {shown(entry)}")
    start, stop = (integer("a number of an element to skip", number) for number in entry)
    if not 0 <= start < stop:
        raise PlanError(f"elements to skip are given as (first, stop) with 0 <= first < stop, got {shown(entry)}")
    return start, stop


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
