"""The questions that only a GPU can answer (U1 to U12), and what an answer consists of."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.gpu.hardware import Hardware
from benchmarks.gpu.recorder import Recorder

QUESTIONS = {
    "U1": "how fast is pinned memory copied to this GPU",
    "U2": "does CuPy compile and run a kernel after torch was imported",
    "U3": "does streamWaitEvent take the legacy stream by its handle 1, and which stream does torch name",
    "U4": "which calls of another thread survive a graph capture in global mode",
    "U5": "when does JAX let go of memory that it was lent: before or after the work that reads it",
    "U6": "does jnp.array(copy=True) copy on the GPU",
    "U7": "is memory that JAX was lent safe to write behind the stream that JAX named",
    "U8": "is shared memory registered by cudaHostRegister copied at full speed",
    "U9": "is write-combined memory worth it",
    "U10": "how late does a waiting thread wake, and does one thread that submits and waits leave gaps",
    "U11": "does SPDL's transfer import without FFmpeg",
    "U12": "how long does making a context keep an event loop from running",
}


@dataclass(frozen=True)
class Finding:
    """An answer.

    Attributes:
        answer: In a sentence.
        settled: False when the question is still open, and then the answer says why.
        measured: The figures behind it.
    """

    answer: str
    settled: bool = True
    measured: dict[str, Any] = field(default_factory=dict)


Asked = dict[str, Callable[[Hardware], Finding]]
"""Question to the function that answers it, in the order in which they are asked."""


def ask(asked: Asked, hardware: Hardware, recorder: Recorder) -> None:
    """Put an answer to each question; one that fails is not settled, and the next is asked."""
    for key, answer in asked.items():
        try:
            finding = answer(hardware)
        except ImportError as error:
            finding = Finding(f"not installed: {error}", settled=False, measured={"missing": True})
        except Exception:  # noqa: BLE001 - whatever went wrong is the finding
            finding = Finding(traceback.format_exc(limit=-3), settled=False, measured={"failed": True})
        number = key.partition(" ")[0]
        recorder.put(**{key: {"question": QUESTIONS[number], **asdict(finding)}})
