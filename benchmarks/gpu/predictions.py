"""What was expected before anything had been measured, and whether it came so.

The bounds were written down before the first run and stay as they are: a prediction that failed is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from benchmarks.gpu.contenders.headspace import named

Parts = Mapping[str, Any]
"""What each part found, by the part's name."""

USUAL = "38.5 MB"


@dataclass(frozen=True)
class Prediction:
    """A number that was expected within bounds.

    Attributes:
        says: In a sentence.
        low, high: The bounds, both within.
        unit: Of the number.
        measured: Reads the number from the results; KeyError where the part that has it has failed.
        required: The work is not done while this does not hold; the others only tell what is true of the machine.
    """

    says: str
    low: float
    high: float
    unit: str
    measured: Callable[[Parts], float]
    required: bool = False


def ceiling(parts: Parts, size: str = USUAL) -> float:
    """Return GB/s of pinned memory."""
    return float(parts["ceilings"]["h2d_pinned_by_batch"][size]["median"])


def step_ms(parts: Parts, name: str, size: str, milliseconds: int) -> float:
    """Return the median milliseconds per step of a contender."""
    return float(parts["loaders"][size]["steps"][name][str(milliseconds)]["step_ms"]["median"])


def rate(parts: Parts, name: str, size: str) -> float:
    """Return GB/s of a contender when a step takes no time."""
    return float(parts["loaders"][size]["nbytes"] / step_ms(parts, name, size, 0) / 1e6)


def exposed(parts: Parts, name: str, framework: str, milliseconds: int) -> float:
    """Return how much longer the device waits between steps than for a batch that is there, as a share of the copy.

    By the device's clock: steps themselves differ by more than a copy when the clocks of the multiprocessors change.
    """
    steps = parts["loaders"][USUAL]["steps"]
    gaps = [float(steps[each][str(milliseconds)]["gap_ms"]["median"]) for each in (name, named(framework))]
    copy_ms = float(parts["loaders"][USUAL]["nbytes"]) / ceiling(parts) / 1e6
    return max(0.0, gaps[0] - gaps[1]) / copy_ms


def more_idle(parts: Parts, name: str, framework: str) -> float:
    """Return by how many points the device is idle more than with a batch that is there already, at steps of 20 ms."""
    steps = parts["loaders"][USUAL]["steps"]
    idle = [steps[each]["20"]["idle"]["median"] for each in (name, named(framework))]
    return float(idle[0] - idle[1]) * 100


def copy_out_us(parts: Parts) -> float:
    """Return the microseconds that one copy within the device takes for a usual batch."""
    return float(parts["loaders"][USUAL]["nbytes"] / parts["ceilings"]["d2d"]["median"] / 1e3)


def stray_contexts(parts: Parts) -> float:
    """Return how many ways of using cuda:1 left a context on cuda:0."""
    return float(sum(0 in visit["contexts"] for visit in parts["two_gpus"]["visits"].values()))


def of_ceiling(size: str) -> Callable[[Parts], float]:
    """Return what reads the share of the ceiling that our copies to the device reach while they run."""
    return lambda parts: float(parts["loaders"][size]["copies"]["h2d_gbps"]) / ceiling(parts, size)


PREDICTIONS = {
    "ceiling": Prediction(
        "pinned memory is copied to the device at 50 to 56 GB/s at 38.5 MB",
        50,
        56,
        "GB/s",
        lambda parts: ceiling(parts),
    ),
    "ours at 38.5 MB": Prediction(
        "our copies reach 95 % of the ceiling at 38.5 MB",
        0.95,
        1.02,
        "of the ceiling",
        of_ceiling("38.5 MB"),
        required=True,
    ),
    "ours at 4 MB": Prediction(
        "our copies reach 90 % of the ceiling at 4 MB", 0.90, 1.02, "of the ceiling", of_ceiling("4 MB")
    ),
    "exposed copy": Prediction(
        "less than 2 % of a copy is exposed when a step takes longer than it",
        *(0, 0.02, "of the copy's time"),
        # Leased, as the copy out of the slot has a prediction of its own.
        lambda parts: exposed(parts, "ours lease (cupy)", "cupy", 20),
        required=True,
    ),
    "idle": Prediction(
        "the device is idle within 1 point of headspace at steps of 20 ms",
        *(-100, 1, "points"),
        lambda parts: more_idle(parts, "ours copy (cupy)", "cupy"),
        required=True,
    ),
    "copy out": Prediction("the copy out of a slot takes less than 40 us at 38.5 MB", 0, 40, "us", copy_out_us),
    "torch DataLoader": Prediction(
        "torch's DataLoader is held up by its copies on the host: below 15 GB/s",
        *(0, 15, "GB/s"),
        lambda parts: rate(parts, "torch DataLoader", USUAL),
    ),
    "stray contexts": Prediction(
        "no loader on cuda:1 makes a context on cuda:0",
        *(0, 0, "contexts"),
        stray_contexts,
        required=True,
    ),
    "two GPUs": Prediction(
        "two stages at once copy to each of two GPUs at 90 % of their speed alone",
        *(0.90, 1.05, "of alone"),
        lambda parts: float(parts["two_gpus"]["stages"]["share"]),
    ),
}


def judge(parts: Parts) -> dict[str, Any]:
    """Return for each prediction what was measured, and whether it held; None where it was not measured."""
    judged = {}
    for name, prediction in PREDICTIONS.items():
        value = _value(prediction, parts)
        held = None if value is None else prediction.low <= value <= prediction.high
        judged[name] = {"measured": value, "held": held}
    return judged


def _value(prediction: Prediction, parts: Parts) -> float | None:
    try:
        value = prediction.measured(parts)
    except (KeyError, ZeroDivisionError):
        return None
    return None if isnan(value) else round(value, 4)


def written_down() -> dict[str, Any]:
    """Return the predictions themselves, as JSON-safe data."""
    return {
        name: {"says": each.says, "low": each.low, "high": each.high, "unit": each.unit, "required": each.required}
        for name, each in PREDICTIONS.items()
    }
