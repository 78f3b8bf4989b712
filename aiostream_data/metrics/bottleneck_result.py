"""Result types of the bottleneck analysis: the limiting stage, its cause, and recommended changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

TOO_EARLY: Final = "not enough data"
"""Cause that is reported if the measurement time is too short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stage that limits the speed of a pipeline, and the cause.

    Attributes:
        place: Plan position of the stage; "" if the limit is not a stage.
        stage: Name of the stage; "consumer" for the training loop, "pipeline" if unknown.
        what: User function or files of the stage, with the source line, such as ``decode (train.py:12)``.
        cause: Name of the cause; see :class:`Limit`.
        detail: Detail of the cause, such as "decode" for the cause "cpu", or "latency" for "network".
        evidence: Measured numbers that support the result, as text.
    """

    place: str = ""
    stage: str
    what: str = ""
    cause: str
    detail: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """A recommended option of a dataset method or of ``open()``.

    Attributes:
        call: Name of the method: ``map``, ``from_tfrecord``, ``open``, ... Add an ``in_subprocess`` call at the end of
            the chain or before ``to_device``.
        what: User function or files of the call; "" for ``open`` and ``in_subprocess``.
        option: Name of the argument.
        value: Recommended value of the argument.
    """

    call: str
    what: str = ""
    option: str
    value: Any

    def __str__(self) -> str:
        return f"{self.call}({self.option}={self.value!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The bottleneck of a pipeline, with its cause and advice. ``str()`` returns one sentence.

    Attributes:
        stage: Name of the limiting stage; "consumer" for the training loop; "pipeline" before the limit is known.
        what: User function or files of the stage, with the source line, such as ``decode (train.py:12)``.
        cause: "consumer", "cpu", "gil", "waiting", "transfer", "loop", "skew", "network", "throttle", "disk", "files",
            "memory", "device", "unclear" or "not enough data".
        detail: Detail of the cause: the name of a computation, or "latency" or "bandwidth" for the cause "network". Can
            be "".
        evidence: Measured numbers that support the result, as text.
        advice: Recommended action.
        changes: Recommended changes of options. The list is empty if no option helps.
    """

    stage: str
    what: str = ""
    cause: str
    detail: str = ""
    evidence: str = ""
    advice: str = ""
    changes: tuple[MeasuredChange, ...] = ()

    @property
    def kind(self) -> str:
        """Cause of the limit with its detail, such as ``cpu (decode)``."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause

    @property
    def title(self) -> str:
        """Name of the stage with its function and source line, such as ``map decode (train.py:12)``."""
        return f"{self.stage} {self.what}" if self.what else self.stage

    @property
    def sentence(self) -> str:
        """One sentence with the stage, the cause, the evidence and the advice."""
        is_stage = self.cause not in (TOO_EARLY, self.stage)
        name = f"{self.title}: {self.kind}" if is_stage else self.kind
        return "; ".join(filter(None, (name, self.evidence, self.advice)))

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible data."""
        return asdict(self) | {"changes": [asdict(each) | {"value": _plain(each.value)} for each in self.changes]}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else repr(value)
