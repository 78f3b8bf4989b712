"""A training run in small over the adversarial device: batches go through a stage, and kernels look at them.

Everything happens on one thread, so that a seed is one history and stays one. What a drill finds wrong is told
in words; an empty list is what a right stage gives, whatever the seed.
"""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from device_mutants import Device
from numpy.typing import NDArray

from aiostream_data.device.backend import StreamRef
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.testing.adversarial import AdversarialBackend

BATCHES = 30
HOST_SLOTS, DEVICE_SLOTS = 2, 3
ROWS = 8
NO_STREAM = StreamRef(-1)
NO_ROOM = "ignore:(not enough memory on|could not page-lock):RuntimeWarning"
"""Filter for what drills with little memory are told, and go on."""
IN_USE = Device()
"""The device package as it is."""


@dataclass(frozen=True)
class Style:
    """What is done in a drill.

    Attributes:
        batch: Makes the batch of a number; None when it cannot be made yet.
        consume: Uses a batch of this number, as a consumer.
        options: Of the stage.
        cast: Whether images are cast on their way.
        capacity_nbytes: Size of the device's memory.
    """

    name: str
    batch: Callable[[Drill, int], Any]
    consume: Callable[[Drill, int, Any], None]
    options: tuple[str, ...] = ()
    cast: bool = False
    capacity_nbytes: int = 1 << 30

    def __str__(self) -> str:
        return self.name


class Drill:
    """One run.

    Attributes:
        findings: What was wrong, in the order in which it was noticed.
        lender: Whose memory batches may come in.
        leased: Batches to give back soon.
        outliving: Batches to give back when the stage was closed.
        forgotten: Batches to let go, without giving them back, right before the stage is closed.
        imported: Copies that another library has.
    """

    def __init__(self, device: Device, seed: int, backend: AdversarialBackend, style: Style) -> None:
        self.device = device
        self.backend = backend
        self.style = style
        self.chance = random.Random(seed)
        self.findings: list[str] = []
        self.lender = Lender()
        self.leased: deque[Any] = deque()
        self.outliving: list[Any] = []
        self.forgotten: list[Any] = []
        self.imported: list[Any] = []
        self._targets: dict[int, dict[str, Any]] = {}
        self.stage = device.stage.DeviceStage(
            backend,
            host_slots=HOST_SLOTS,
            device_slots=DEVICE_SLOTS,
            find_shared=self.lender.find,
            profile="profile" in style.options,
        )

    def run(self, batches: int = BATCHES) -> None:
        """Send all batches, and consume each on some stream some time later."""
        held: deque[tuple[int, Any]] = deque()
        sent = 0
        while sent < batches or held:
            if sent < batches and self.chance.random() < 0.6:
                batch = self.send(sent)
                if batch is not None:
                    held.append((sent, batch))
                    sent += 1
            elif held:
                self.consume(*held.popleft())
            elif self.leased:
                self.leased.popleft().release()
        while self.leased:
            self.leased.popleft().release()
        if self.chance.random() < 0.5 or not self.outliving:
            self.backend.settle()

    def send(self, number: int) -> Any:
        """Send a batch; None when there is no slot, or no batch, yet.

        There is no waiter: who needs a slot waits for the copy that has it, so that all of it is on this thread.
        """
        content = self.style.batch(self, number)
        if content is None:
            self.stage._ring.join_oldest()
            return None
        filling = self.stage.try_fill(content)
        del content
        if filling is None:
            return None
        try:
            filling.write(self._cast if self.style.cast else None)
            return filling.take() if filling.submit() else None
        finally:
            filling.drop()

    def _cast(self, parts: Any) -> Any:
        cast = self.device.image_cast.ImageCast(dtype="float32", scale=1, flip=True)
        return self.device.cast_plan.with_cast(parts, cast, None)

    def consume(self, number: int, batch: Any) -> None:
        """Consume on any stream, now and then on one that nobody has used before."""
        if self.chance.random() < 0.05:
            self.backend.consumer_stream()
        self.change_stream()
        self.style.consume(self, number, batch)

    def change_stream(self) -> StreamRef:
        """Go on on any stream of the consumer's."""
        self.backend.current = self.chance.choice(self.backend.consumers)
        return self.backend.current

    def look(self, number: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Have a kernel look at what it finds at the addresses of a batch, on the consumer's current stream."""

        def kernel(*found: NDArray[Any]) -> None:
            if not all((array == number).all() for array in found):
                self.findings.append("a batch was torn")

        self.backend.launch(self.backend.current, kernel, *arrays, turns=self.chance.randint(1, 3))

    def targets(self) -> dict[str, Any]:
        """Return the fixed arrays of the current stream, in device memory."""
        stream = self.backend.current.ptr
        if stream not in self._targets:
            like = plain_batch(self, 0)
            values, splits = (self._like(array) for array in (like["ragged"].values, like["ragged"].row_splits))
            n = self._like(np.asarray(like["n"]))
            self._targets[stream] = {"x": self._like(like["x"]), "ragged": trusted_ragged(values, splits), "n": n}
        return self._targets[stream]

    def _like(self, array: NDArray[Any]) -> NDArray[Any]:
        return self.backend.view(self.backend.consumer_block(array.nbytes), 0, array.shape, array.dtype)

    def check(self) -> None:
        """Look at what is left when everything has run: every mark is some slot's."""
        ring = self.stage._ring
        ring.reclaim()
        while ring.join_oldest():
            pass
        kept = sum(len(slot.marks) for slot in ring._device.all)
        if self.backend.marks_out != kept:
            self.findings.append(f"{self.backend.marks_out} marks are not retired, and slots wait for {kept}")


class Lender:
    """Memory that another process writes batches into, again as soon as nobody looks into it here."""

    NBYTES = 36_000

    def __init__(self) -> None:
        self._all = [Lent(self.NBYTES) for _ in range(3)]
        self._free = list(self._all)

    def lend(self, number: int) -> NDArray[np.int32] | None:
        """Return an array of ``number``, just written; None while all memory is looked into."""
        if not self._free:
            return None
        lent = self._free.pop()
        array = np.frombuffer(lent.bytes.data, np.int32)
        array[:] = number
        weakref.finalize(array, self._free.append, lent).atexit = False
        return array

    def find(self, array: NDArray[Any]) -> Lent | None:
        """Return the memory that an array looks into, as the stage asks for it."""
        address = array.ctypes.data
        return next((lent for lent in self._all if lent.start <= address < lent.start + lent.nbytes), None)


class Lent:
    """One piece of such memory; see :class:`aiostream_data.device.shared_slots.SharedMemory`."""

    retired = False

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.empty(nbytes, np.uint8)
        self.start = self.bytes.ctypes.data
        self.nbytes = nbytes

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        return self.bytes[start:stop]


def plain_batch(drill: Drill, number: int, rows: int = ROWS) -> dict[str, Any]:
    ragged = RaggedArray(np.full(rows, number, np.int64), np.array([0, rows // 2, rows]))
    return {"x": np.full((rows, 3), number, np.int32), "ragged": ragged, "n": number}


def growing_batch(drill: Drill, number: int) -> dict[str, Any]:
    return plain_batch(drill, number, ROWS + 2 * number)


def images(drill: Drill, number: int) -> dict[str, Any]:
    return {"image": np.full((4, 5, 6, 3), number, np.uint8), "n": number}


def shared_batch(drill: Drill, number: int) -> dict[str, Any] | None:
    """A batch of which one array stands in memory that another process writes."""
    lent = drill.lender.lend(number)
    return None if lent is None else plain_batch(drill, number) | {"x": lent}


def arrays_of(batch: dict[str, Any]) -> list[NDArray[Any]]:
    """Return the arrays of a batch whose every number is the batch's."""
    return [leaf.values if isinstance(leaf, RaggedArray) else leaf for leaf in batch.values()]


def take_out(drill: Drill, number: int, batch: Any) -> None:
    """Consume by copy, or not at all; what was taken out is dropped as soon as the kernel is enqueued."""
    if drill.chance.random() < 0.1:
        batch.discard()
    else:
        drill.look(number, arrays_of(batch.materialise()))


def hand_on(drill: Drill, number: int, batch: Any) -> None:
    """Consume by copy, and have another library import it: on a stream of its own, or without one. It keeps it."""
    taken = arrays_of(batch.materialise())
    exported = batch._slots.owned(taken)
    drill.imported.append(taken)
    if drill.chance.random() < 0.2:
        if not all((np.from_dlpack(ForStream(array, NO_STREAM)) == number).all() for array in exported):
            drill.findings.append("the host read a copy before it was made")
    else:
        stream = drill.change_stream()
        drill.look(number, [np.from_dlpack(ForStream(array, stream)) for array in exported])


def lease(drill: Drill, number: int, batch: Any) -> None:
    """Use a batch in its slot, on one stream or two, and give it back now, later, or never: the collector finds it."""
    batch.lend()
    for _ in range(drill.chance.randint(1, 2)):
        drill.change_stream()
        drill.look(number, arrays_of(batch.arrays()))
    exported = batch.dlpack()["x"]
    if drill.chance.random() < 0.3:
        drill.look(number, [np.from_dlpack(ForStream(exported, drill.change_stream()))])
    if drill.chance.random() < 0.1 and not (np.from_dlpack(ForStream(exported, NO_STREAM)) == number).all():
        drill.findings.append("the host read a batch before it had arrived")
    ending = drill.chance.random()
    if number == BATCHES - 1:
        drill.outliving.append(batch)
    elif number == BATCHES - 2:
        drill.forgotten.append(batch)
    elif ending < 0.5:
        batch.release()
    elif ending < 0.8:
        drill.leased.append(batch)
        if len(drill.leased) == 2:
            drill.leased.popleft().release()


class ForStream:
    """Has NumPy import an array as a framework does whose current stream is ``stream``."""

    def __init__(self, exported: Any, stream: StreamRef) -> None:
        self._exported = exported
        self._stream = stream

    def __dlpack_device__(self) -> Any:
        return self._exported.__dlpack_device__()

    def __dlpack__(self, *, stream: None = None, **asked: Any) -> Any:
        return self._exported.__dlpack__(stream=self._stream.ptr, **asked)


def write_into(drill: Drill, number: int, batch: Any) -> None:
    """Have a batch written into fixed arrays of the current stream."""
    batch.lend()
    drill.look(number, arrays_of(batch.into(drill.targets())))


STYLES = (
    Style("copies", plain_batch, take_out),
    Style("copies of growing batches", growing_batch, take_out),
    Style("copies with room for two slots", plain_batch, take_out, capacity_nbytes=1800),
    Style("copies that others import", plain_batch, hand_on),
    Style("leases", plain_batch, lease),
    Style("leases of growing batches", growing_batch, lease),
    Style("into fixed arrays", plain_batch, write_into),
    Style("casts", images, take_out, cast=True),
    Style("copies from shared memory", shared_batch, take_out),
    Style("profiled copies", plain_batch, take_out, options=("profile",)),
)


class MakeBackend(Protocol):
    def __call__(self, seed: int, *, capacity_nbytes: int) -> AdversarialBackend: ...


def drill(device: Device, seed: int, style: Style, make: MakeBackend = AdversarialBackend) -> list[str]:
    """Run one drill and return what was wrong."""
    backend = make(seed, capacity_nbytes=style.capacity_nbytes)
    run = Drill(device, seed, backend, style)
    try:
        with run.stage:
            run.run()
            run.check()
            for batch in run.forgotten:
                run.look(BATCHES - 2, arrays_of(batch.arrays()))
            batch = None
            run.forgotten.clear()
        for batch in run.outliving:
            run.look(BATCHES - 1, arrays_of(batch.arrays()))
            batch.release()
        batch = None
        run.outliving.clear()
        backend.settle()
        if backend.host_nbytes:
            run.findings.append(f"{backend.host_nbytes} bytes of host slots outlive the stage")
    except Exception as error:  # a stage that waits too little may do anything
        run.findings.append(f"{type(error).__name__}: {error}")
    return run.findings + backend.violations
