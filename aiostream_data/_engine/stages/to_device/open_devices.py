"""Devices used by one loader, keyed by ``to_device`` plan node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiostream_data.plan.base import Node

if TYPE_CHECKING:
    from aiostream_data.device.stage import DeviceStage


class Devices(dict[Node, "DeviceStage"]):
    """Devices used by one loader, keyed by plan node; see :class:`~aiostream_data._engine.flow.features.Features`."""
