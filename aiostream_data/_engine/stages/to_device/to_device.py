"""Write batches into host memory slots, and copy the batches to a device in order.

The stage's coroutine waits for a free host slot for each batch, without blocking a thread. Threads of a pool write
several batches concurrently, each batch into its own host slot. A dedicated thread then submits the device copies in
batch order. This thread never blocks, because the stage calls the thread only when a device slot is free. The device's
waiter thread releases host slots after their copies. A :class:`~aiostream_data.device.filling.Filling` owns each slot
until the batch has been sent. Therefore no slot is lost if the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from aiostream_data._engine.flow.context import hop, settle
from aiostream_data._engine.flow.hops import Hops
from aiostream_data._engine.flow.resizable_semaphore import ResizableSemaphore
from aiostream_data._engine.flow.stage import OneToOne
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.stages.to_device.cast_rows import CastRows
from aiostream_data._engine.stages.to_device.open_devices import Devices
from aiostream_data._engine.stages.to_device.ring_changes import RingChanges, changes_of
from aiostream_data.device.filling import Filling
from aiostream_data.device.stage import DeviceStage as Device
from aiostream_data.device.wait_limit import Patience
from aiostream_data.executors.base import Outcome
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.operators import ToDevice
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds

LOOK_AGAIN_S: Final = 0.05
"""Interval in seconds between checks for free slots, on a device that lends batches.

The checks are needed because a garbage-collected batch sends no notification.
"""


@dataclass
class ToDeviceStage(OneToOne):
    """Stage of a ``ToDevice`` plan node: copies batches to a device."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: ToDevice = self.node
        services = self.context.services
        self.counters.waits_for = "device"
        device = services.features.of(Devices)[node]
        self.counters.workers = min(device.host_slots, services.cpus)
        with services.workers.thread("asd-device") as submitter, changes_of(device.state) as changes:
            casting = CastRows(node, self.context)
            await _Sending(self, device, outlet, submitter, changes, casting).run(inlets[0])


class _Row(NamedTuple):
    """Batch with its host slot, row id and lineage."""

    filling: Filling
    ids: RowIds
    made_of: list[MadeOf | None] | None


@dataclass
class _Sending:
    """One run of the ``to_device`` stage, which receives host batches and sends device batches in order."""

    stage: ToDeviceStage
    device: Device
    outlet: Outlet
    submitter: ThreadExecutor
    changes: RingChanges
    casting: CastRows
    _open: set[Filling] = field(default_factory=set)

    async def run(self, inlet: Inlet) -> None:
        services = self.stage.context.services
        self._slots = services.budget.charge(0, "slots")
        hops = Hops(
            begin=self._write,
            emit=self._send,
            window=ResizableSemaphore(self.device.host_slots),
            ordered=True,
            running=ResizableSemaphore(self._counters.workers),
            one_at_a_time=services.workers.one_at_a_time,
        )
        try:
            await hops.run(self._rows(inlet))
        finally:
            for filling in self._open:
                filling.drop()

    @property
    def _counters(self) -> StageCounters:
        return self.stage.counters

    async def _rows(self, inlet: Inlet) -> AsyncIterator[_Row]:
        """Yield each batch together with a free host slot."""
        while (chunk := await self._received(inlet)) is not None:
            for row, batch in enumerate(chunk.elements()):
                filling = await self._slot_for(batch, chunk.lease)
                self._open.add(filling)
                made_of = None if chunk.made_of is None else chunk.made_of[row : row + 1]
                yield _Row(filling, chunk.ids.row(row), made_of)
            del chunk, batch  # release the memory while waiting for the next chunk

    async def _received(self, inlet: Inlet) -> Chunk | None:
        if inlet.ready:
            return await inlet.receive()
        with self.device.source_waits.beside(self.device.device_waits):
            return await inlet.receive()

    async def _slot_for(self, batch: object, lease: object) -> Filling:
        # While filled slots wait for a device slot, count the wait as waiting for the consumer.
        waits = self.device.host_waits.beside(self.device.device_waits)
        return await self.changes.until(partial(self.device.try_fill, batch, lease), waits)

    def _write(self, row: _Row) -> asyncio.Future[Outcome]:
        prepare = self.casting.prepare(row.ids, row.made_of)
        return self.stage.context.services.pool.submit(row.filling.write, prepare)

    async def _send(self, row: _Row, outcome: Outcome) -> None:
        settle(self._counters, outcome)
        filling = row.filling
        await self._submit(filling)
        self._slots.resize(self.device.host_nbytes)
        # The slots are charged while this stage runs, so the batch is not charged again.
        await self.outlet.send(Items([filling.sent], row.ids, "slot", row.made_of))
        filling.take()  # the receiver owns the slot now: no await since it was sent
        self._open.discard(filling)

    def _has_device_slot(self, patience: Patience) -> bool | None:
        if self.stage.context.services.workers.one_at_a_time:
            patience.next_look_s()  # debug mode: the consumer waits on this thread and cannot check itself
        return self.device.has_device_slot()

    async def _submit(self, filling: Filling) -> None:
        waits, state = self.device.device_waits, self.device.state
        look_again_s = LOOK_AGAIN_S if self.device.lends else None
        waited_s = waits.seconds
        look = partial(self._has_device_slot, Patience([self.device]))
        while True:
            await self.changes.until(look, waits, look_again_s)
            changes = state.changes
            if await hop(self._counters, self.submitter.submit(filling.submit)):
                break
            with waits:  # the slot was not free: it is leased and its stream is being captured
                await self.changes.past(changes, LOOK_AGAIN_S)
        self._counters.output_wait_s += waits.seconds - waited_s
