"""Elements to skip and rows to block. Users request exclusions separately from the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiostream_data.arguments import integer, several, shown
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.plan.blocked_rows import Blocked

Span = tuple[int, int]


@dataclass(frozen=True)
class Exclusions:
    """Rows and elements excluded from a stream.

    Attributes:
        skip: Half-open ranges of element numbers to read and discard. Elements are numbered from the start of the
            stream. Ascending and disjoint.
        blocked: Excluded rows and shards.
    """

    skip: tuple[Span, ...] = ()
    blocked: Blocked = field(default_factory=Blocked)

    @classmethod
    def of(cls, skip: Iterable[Span] = (), block: Iterable[Any] = ()) -> Self:
        """Build an :class:`Exclusions` from the arguments ``skip`` and ``block`` of ``open()``.

        Raises:
            PlanError: A range is not an ascending pair of numbers, or an entry of ``block`` has an unsupported type.
        """
        return cls(
            _joined([_span(entry) for entry in several("skip", skip, "pairs of numbers (first, stop)")]),
            Blocked.of(block),
        )

    def __or__(self, other: Exclusions) -> Exclusions:
        return Exclusions(_joined([*self.skip, *other.skip]), self.blocked | other.blocked)

    def kept(self, first: int, count: int) -> list[Span]:
        """Return the ranges that are not skipped among ``count`` elements, starting with element number ``first``.

        The returned ranges are relative to element ``first``.
        """
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
        """Serialize the exclusions to JSON-compatible data, or None if nothing is excluded."""
        if not self.skip and not self.blocked:
            return None
        return {"skip": [list(span) for span in self.skip], **self.blocked.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Self:
        """Restore an :class:`Exclusions` from the result of :meth:`as_dict`.

        Raises:
            StateMismatchError: The saved list of skipped and blocked rows is damaged.
        """
        if values is None:
            return cls()
        try:
            return cls(_joined([_span(entry) for entry in values["skip"]]), Blocked.from_dict(values))
        except (KeyError, TypeError, ValueError) as error:
            raise StateMismatchError(
                [f"the list of skipped and blocked rows in the state is damaged: {error}"],
                "Use another checkpoint.",
                head="cannot resume:",
            ) from None


def _span(entry: Any) -> Span:
    if not isinstance(entry, (tuple, list)) or len(entry) != 2:
        raise PlanError(f"skip must contain pairs (first, stop), got {shown(entry)}")
    start, stop = (integer("an element number in skip", number) for number in entry)
    if not 0 <= start < stop:
        raise PlanError(f"skip must contain pairs (first, stop) with 0 <= first < stop, got {shown(entry)}")
    return start, stop


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
