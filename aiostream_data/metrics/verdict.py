"""The answer to what limits a pipeline: which stage, why, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

TOO_EARLY: Final = "not enough data"
"""The cause as long as too little was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which stage limits a pipeline, and why.

    Attributes:
        place: Name of its place in the plan; "" where it is no stage.
        stage: Its name; "consumer" for the training loop, "pipeline" where nothing is known.
        what: Function or files of the stage, and the line, such as ``decode (train.py:12)``.
        cause: See :class:`Limit`.
        detail: Part of the cause, such as "decode" of "cpu", or "latency" of "network".
        evidence: The measurement that the verdict follows from.
    """

    place: str = ""
    stage: str
    what: str = ""
    cause: str
    detail: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """An option to set in the chain, or in ``open()``.

    Attributes:
        call: The method: ``map``, ``from_tfrecord``, ``open``, ... A call of ``in_subprocess`` is added, at the end or
            before ``to_device``.
        what: Function or files of the call; "" for ``open`` and ``in_subprocess``.
        option: Name of the argument.
        value: Its value.
    """

    call: str
    what: str = ""
    option: str
    value: Any

    def __str__(self) -> str:
        return f"{self.call}({self.option}={self.value!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What limits a pipeline. ``str()`` is one sentence.

    Attributes:
        stage: Name of the stage; "consumer" for the training loop, "pipeline" where nothing is known yet.
        what: Function or files of the stage, and the line: ``decode (train.py:12)``.
        cause: "consumer", "cpu", "gil", "waiting", "transfer", "loop", "skew", "network", "throttle", "disk", "files",
            "memory", "device", "unclear" or "not enough data".
        detail: Part of the cause: what computes, or "latency" or "bandwidth" of a network; may be "".
        evidence: The measurement that this follows from.
        advice: What to do about it.
        changes: The same as options to set. Empty where no option helps.
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
        """Cause and detail: ``cpu (decode)``."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause

    @property
    def title(self) -> str:
        """Name of the stage, with function and line: ``map decode (train.py:12)``."""
        return f"{self.stage} {self.what}" if self.what else self.stage

    @property
    def sentence(self) -> str:
        """One sentence with stage, cause, evidence and advice."""
        is_stage = self.cause not in (TOO_EARLY, self.stage)
        name = f"{self.title}: {self.kind}" if is_stage else self.kind
        return "; ".join(filter(None, (name, self.evidence, self.advice)))

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """Return the same as JSON-safe data."""
        return asdict(self) | {"changes": [asdict(each) | {"value": _plain(each.value)} for each in self.changes]}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else repr(value)
