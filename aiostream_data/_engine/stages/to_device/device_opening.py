"""Open the device of a ``to_device`` node before the first stage starts."""

from __future__ import annotations

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.stages.to_device.open_devices import Devices
from aiostream_data.device.handover import HandOver
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.executors.mapping import mapping_of
from aiostream_data.plan.operators import ToDevice


async def open_device(node: ToDevice, context: RunContext) -> None:
    """Open the device on a worker thread, and keep it for the loader.

    Raises:
        MissingExtraError, DeviceUnavailableError, DeviceMemoryError: The device (such as a GPU) cannot be used.
        ForkedPipelineError: This process was forked from a process that had already opened a GPU.
    """

    def open_stage() -> DeviceStage:
        backend = open_backend(node.device, context.services.options.current_gpu)
        if node.transform is not None:
            backend.prepare_cast()
        return DeviceStage(
            backend,
            host_slots=node.depth,
            device_slots=node.depth,
            hand_over=HandOver(handoff=node.handoff, framework=node.framework),
            allow_pageable=node.allow_pageable,
            profile=context.services.options.run.diagnosing.profile,
            find_shared=mapping_of,
            max_shared_nbytes=context.services.budget.limit,
        )

    device = await hop(context.counters(node), context.services.pool.submit(open_stage))
    context.services.features.of(Devices)[node] = device
    if not context.services.workers.one_at_a_time:  # in debug mode, the user of a slot waits for its copy
        device.start_waiter()
