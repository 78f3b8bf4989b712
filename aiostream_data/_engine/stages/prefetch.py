"""Pass chunks through a deeper channel, so that the input runs ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.flow.stage import OneToOne
from aiostream_data._engine.flow.stage_io import Inlet, Outlet


@dataclass
class PrefetchStage(OneToOne):
    """Running form of ``Prefetch``; the depth is the channel's, set where the stage is started."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            await outlet.send(chunk)
