"""Check whether a stage reads its inputs through inlets (ends of channels) or runs its inputs itself."""

from __future__ import annotations

from typing import Final

from aiostream_data.plan import operators as op
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import Node
from aiostream_data.plan.replaying import Recalled
from aiostream_data.plan.subprocess import InSubprocess

OPENS_ITS_INPUTS: Final = (src.ReadFiles, op.Repeat, op.Concatenate, op.Cache, InSubprocess, Recalled)
"""Types of plan nodes whose stage runs its inputs itself, once or several times, instead of reading inlets."""


def reads_inlets(node: Node) -> bool:
    """Return True if the stage of ``node`` reads its inputs through inlets (receiving ends of channels)."""
    return bool(node.inputs) and not isinstance(node, OPENS_ITS_INPUTS)
