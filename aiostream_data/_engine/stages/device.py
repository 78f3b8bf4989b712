"""Write batches into slots and send them to a device; the consumer takes them out on its own thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.context import hop
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import OneToOne
from aiostream_data.device.stage import DeviceStage as Device
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.plan.operators import ToDevice
from aiostream_data.records import Items


@dataclass
class DeviceStage(OneToOne):
    """Running form of ``ToDevice``: one thread, so that batches reach the device in order."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ToDevice = self.node
        self.counters.waits_for = "device"
        device = self.context.services.devices[node]
        with self.context.services.workers.thread("asd-device") as thread:
            await self._send_all(inlets[0], outlet, device, thread)

    async def _send_all(self, inlet: Inlet, outlet: Outlet, device: Device, thread: ThreadExecutor) -> None:
        slots = self.context.services.budget.charge(0, "slots")
        async for chunk in inlet:
            for row, batch in enumerate(chunk.elements()):
                sent = await hop(self.counters, thread.submit(device.put, batch))
                slots.resize(device.host_nbytes)
                made_of = None if chunk.made_of is None else chunk.made_of[row : row + 1]
                # The device's slots are charged, for as long as this stage runs; so the batch is not charged again.
                await outlet.send(Items([sent], chunk.ids[row : row + 1], "slot", made_of))
