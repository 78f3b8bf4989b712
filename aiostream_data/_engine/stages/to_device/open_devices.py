"""The devices of one loader, by the nodes that deliver to them."""

from __future__ import annotations

from aiostream_data.device.stage import DeviceStage
from aiostream_data.plan.base import Node


class Devices(dict[Node, DeviceStage]):
    """One per loader; see :class:`~aiostream_data._engine.flow.features.Features`."""
