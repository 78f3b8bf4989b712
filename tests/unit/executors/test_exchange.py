"""Messages between two ends: arrays in shared memory that is lent, comes back, and is never waited for in vain."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaks import leaves_nothing
from numpy.typing import NDArray

from aiostream_data.executors import blocks, exchange
from aiostream_data.executors.blocks import GRAIN_NBYTES, LinkEnded, rounded
from aiostream_data.executors.exchange import BLOCK_NBYTES, Exchange, linked
from aiostream_data.executors.mapping import mapping_of
from aiostream_data.executors.pickling import APART_NBYTES

MIB = 1 << 20


@pytest.fixture
def ends() -> Iterator[tuple[Exchange, Exchange]]:
    with leaves_nothing():
        here, there = linked(4 * MIB)
        yield here, there
        here.close()
        there.close()


def block(nbytes: int = MIB // 2, fill: int = 7) -> NDArray[np.uint8]:
    return np.full(nbytes, fill, np.uint8)


def in_a_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Begin a call; the list gets its result, or its error."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(function())
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def joined(call: tuple[threading.Thread, list[Any]]) -> Any:
    call[0].join(5)
    assert call[1], "the call did not end"
    return call[1][0]


def about_to_wait(end: Exchange) -> threading.Event:
    """Return what is set when a send of this end, begun after this, finds no room and waits."""
    waits = threading.Event()
    heard = end._lender._heard

    def tell(wait: bool) -> bool:
        if wait:
            waits.set()
        return heard(wait)

    end._lender._heard = tell  # type: ignore[method-assign]
    return waits


# -- what arrives


@given(
    st.recursive(
        st.one_of(
            st.integers(),
            st.text(max_size=20),
            st.binary(max_size=200),
            st.sampled_from([0, 1, 511, APART_NBYTES - 1, APART_NBYTES, 5_000, BLOCK_NBYTES, 300_000]).map(
                lambda nbytes: np.arange(nbytes, dtype=np.int64).astype(np.uint8)
            ),
            st.integers(1, 70).map(lambda n: np.asfortranarray(np.arange(n * n * 3.0).reshape(n, n, 3))),
        ),
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
        max_leaves=12,
    ),
)
@settings(max_examples=60, deadline=None)
def test_any_message_arrives_as_it_was_sent_and_its_arrays_can_be_written(message: Any) -> None:
    here, there = linked(4 * MIB)
    try:
        for _ in range(2):  # the second time in blocks that were used before
            sending = in_a_thread(lambda: here.send(message))
            received = there.receive().message
            assert joined(sending) is None
            assert_same(received, message)
            del received
    finally:
        here.close()
        there.close()


def assert_same(received: Any, sent: Any) -> None:
    if isinstance(sent, np.ndarray):
        np.testing.assert_array_equal(received, sent)
        assert received.dtype == sent.dtype
        received[...] = 0  # raises unless it can be written
    elif isinstance(sent, dict):
        assert list(received) == list(sent)
        for key in sent:
            assert_same(received[key], sent[key])
    elif isinstance(sent, list):
        assert len(received) == len(sent)
        for one, other in zip(received, sent, strict=True):
            assert_same(one, other)
    else:
        assert received == sent


def test_a_large_array_arrives_as_a_view_of_shared_memory_and_its_neighbours_share_the_block(
    ends: tuple[Exchange, Exchange],
) -> None:
    here, there = ends
    here.send({"image": block(MIB), "mask": block(MIB, 3), "label": 5})
    received, lease, _ = there.receive()
    assert here.lent_nbytes == lease.nbytes == rounded(2 * MIB + 4096)
    for array in (received["image"], received["mask"]):
        assert array.ctypes.data % blocks.ALIGNMENT == 0
        assert not array.flags.owndata


@given(st.integers(1, 1 << 40))
def test_a_block_is_large_enough_and_an_eighth_or_a_grain_larger_at_most(nbytes: int) -> None:
    size = rounded(nbytes)
    assert nbytes + blocks.ALIGNMENT <= size <= max(nbytes + nbytes // 8, nbytes + GRAIN_NBYTES) + blocks.ALIGNMENT


def test_what_does_not_pickle_is_refused_and_nothing_was_sent(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    with pytest.raises(TypeError, match="pickle"):
        here.send(threading.Lock())
    here.send("next")
    assert there.receive().message == "next"


class NeverUnpickles:
    def __init__(self) -> None:
        self.data = block()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_refuse, (self.data,))


def _refuse(data: object) -> None:
    raise EOFError("refuses")


def test_what_does_not_unpickle_is_an_error_of_its_own_and_gives_its_memory_back(
    ends: tuple[Exchange, Exchange],
) -> None:
    here, there = ends
    here.send(NeverUnpickles())
    with pytest.raises(EOFError, match="refuses") as caught:
        there.receive()
    assert not isinstance(caught.value, LinkEnded)
    del caught
    gc.collect()
    for _ in range(20):
        here.send(block())
        there.receive()
    assert here.lent_nbytes <= MIB


# -- memory that is lent


def test_blocks_are_used_again_once_their_arrays_are_dead(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    for fill in range(50):
        here.send(block(fill=fill))
        received = there.receive().message
        assert received[0] == received[-1] == fill
        del received
    assert here._lender._next_number == 1


def test_arrays_tell_which_mapping_they_look_into_however_they_were_cut(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send({"image": np.arange(MIB, dtype=np.int32).reshape(4, -1), "small": np.arange(4)})
    message = there.receive().message
    image = message["image"]
    mapping = mapping_of(image)
    assert mapping is not None
    assert mapping.nbytes == rounded(4 * MIB + 4096)
    for array in (image[1:, ::2], image.T, image.view(np.uint8)[0], np.frombuffer(image[2].data, np.int8)):
        assert mapping_of(array) is mapping
    for array in (message["small"], image.copy(), np.zeros(3), np.frombuffer(b"bytes", np.uint8)):
        assert mapping_of(array) is None


def test_a_mapping_is_retired_when_its_block_is_not_lent_again() -> None:
    here, there = linked(MIB)
    with closing(here), closing(there):
        mappings = []
        for nbytes in (MIB - 4096, MIB // 4, MIB // 4):
            here.send(block(nbytes))
            mapping = mapping_of(there.receive().message)
            assert mapping is not None
            mappings.append(mapping)
        assert [mapping.retired for mapping in mappings] == [True, False, False]
        assert mappings[1] is mappings[2]
    assert mappings[2].retired, "nobody writes into it once the link has ended"


def test_a_block_comes_back_only_when_the_last_slice_is_dead(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send([block(fill=1), block(fill=2)])
    first, second = there.receive().message
    slice_of_it = second[5:6]
    del first, second
    for _ in range(3):
        here.send(block())
        there.receive()
    assert slice_of_it[0] == 2
    assert here.lent_nbytes >= MIB


def test_a_sender_waits_while_too_much_is_lent_and_goes_on_when_an_array_dies(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    kept = []
    for _ in range(3):
        here.send(block(MIB))
        kept.append(there.receive())
    waits = about_to_wait(here)
    sending = in_a_thread(lambda: here.send(block(MIB, 9)))
    assert waits.wait(5)
    assert not sending[1]
    kept.pop()
    assert joined(sending) is None
    assert there.receive().message[0] == 9


def test_a_message_over_the_limit_passes_alone(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send(block(9 * MIB))
    large = there.receive()
    waits = about_to_wait(here)
    sending = in_a_thread(lambda: here.send(block()))
    assert waits.wait(5)
    del large
    assert joined(sending) is None


def test_a_consumer_that_keeps_everything_never_stops_a_sender_once_it_says_so(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    kept = []
    for number in range(40):
        here.send(block(MIB, number))
        message, lease, _ = there.receive()
        lease.release()
        lease.release()
        kept.append(message)
    assert [array[0] for array in kept] == list(range(40))
    here.send("look")
    assert here.lent_nbytes <= 2 * MIB
    kept.clear()
    here.send(block(MIB))
    there.receive()
    assert here.idle_nbytes <= 4 * MIB
    here.send("forget the rest")
    there.receive()
    assert there.receive().message == "forget the rest"
    assert len(there._borrower._blocks) <= 5


def test_a_lease_that_is_released_after_its_arrays_died_frees_nothing_of_the_next_loan(
    ends: tuple[Exchange, Exchange],
) -> None:
    here, there = ends
    here.send(block())
    message, stale, _ = there.receive()
    del message
    here.send(block())
    kept = there.receive()
    stale.release()
    here.send(block())
    assert here.lent_nbytes == 2 * rounded(MIB // 2 + 200)
    del kept


def test_arrays_may_die_on_any_thread_and_inside_a_garbage_collection(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    handed_over: SimpleQueue[Any] = SimpleQueue()

    def bury() -> None:
        while (message := next_message()) is not None:
            cycle: list[Any] = [message]
            cycle.append(cycle)
            del message, cycle
            gc.collect(0)

    def next_message() -> Any:
        while True:
            try:
                return handed_over.get(timeout=0.05)
            except Empty:
                gc.collect()  # a collection that another thread had begun may have passed over a cycle

    def receive() -> None:
        for _ in range(200):
            handed_over.put(there.receive().message)

    buriers = [in_a_thread(bury) for _ in range(3)]
    receiving = in_a_thread(receive)
    for _ in range(200):
        here.send(block(MIB))  # waits for the threads that bury, again and again
    joined(receiving)
    for _ in buriers:
        handed_over.put(None)
    for burier in buriers:
        joined(burier)
    gc.collect()  # the last cycle may be one that a collection of another thread has passed over
    here.send(block(4 * MIB))
    assert here.lent_nbytes == rounded(4 * MIB + 200)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["keep", "drop", "release"]), st.integers(70_000, 900_000)), max_size=30))
def test_whatever_is_kept_dropped_and_released_no_live_array_is_overwritten_and_the_count_is_right(
    steps: list[tuple[str, int]],
) -> None:
    here, there = linked(64 * MIB)
    try:
        kept: list[tuple[int, Any]] = []
        for number, (what, nbytes) in enumerate(steps):
            here.send(block(nbytes, number))
            received = there.receive()
            if what == "release":
                received.lease.release()
            if what != "drop":
                kept.append((number, received))
            del received
            if number % 3 == 2 and kept:
                kept.pop(0)
            assert all(received.message[0] == received.message[-1] == fill for fill, received in kept)
        here._lender._collect(wait=False)
        wanted = [steps[number][1] for number, _ in kept if steps[number][0] == "keep"]
        held = sum(rounded(nbytes) for nbytes in wanted)
        assert held <= here.lent_nbytes <= 2 * held + MIB * bool(held)
    finally:
        here.close()
        there.close()


def test_both_sides_send_large_messages_at_once(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends

    def send(end: Exchange) -> None:
        for _ in range(30):
            end.send(block(MIB))

    def receive(end: Exchange) -> list[int]:
        return [int(end.receive().message[0]) for _ in range(30)]

    sending = [in_a_thread(partial(send, end)) for end in ends]
    receiving = [in_a_thread(partial(receive, end)) for end in (there, here)]
    assert [joined(call) for call in receiving] == [[7] * 30] * 2
    assert [joined(call) for call in sending] == [None, None]


# -- memory that there is not


def test_without_memory_to_share_messages_pass_through_the_socket_with_one_warning(
    ends: tuple[Exchange, Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ends

    def none_left(descriptor: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(blocks, "_allocate", none_left)
    receiving = in_a_thread(lambda: [there.receive().message for _ in range(3)])
    with pytest.warns(RuntimeWarning, match=r"No space left.*slower") as warned:
        here.send([block(3 * MIB, 0), block(5, 0)])
    for fill in (1, 2):  # an error if it warned again
        here.send([block(3 * MIB, fill), block(5, fill)])
    assert [(int(large[-1]), int(small[0])) for large, small in joined(receiving)] == [(0, 0), (1, 1), (2, 2)]
    assert len(warned) == 1
    assert here.lent_nbytes == 0


def test_where_there_is_no_anonymous_memory_a_file_without_a_name_takes_its_place(
    ends: tuple[Exchange, Exchange], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = ends
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here.send(block(MIB, 5))
    received = there.receive().message
    assert here.lent_nbytes
    assert received[0] == received[-1] == 5
    assert list(tmp_path.iterdir()) == []


def test_a_consumer_that_keeps_very_many_messages_gets_the_rest_through_the_socket(
    ends: tuple[Exchange, Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ends
    monkeypatch.setattr(blocks, "MAX_BLOCKS", 3)
    kept = []
    for fill in range(6):
        here.send(block(BLOCK_NBYTES, fill))
        received = there.receive()
        received.lease.release()
        kept.append(received)
    assert [received.message[0] for received in kept] == list(range(6))
    assert [received.lease.nbytes > 0 for received in kept] == [True] * 3 + [False] * 3
    kept.pop(0)
    here.send(block(BLOCK_NBYTES))
    assert there.receive().lease.nbytes > 0


# -- how it ends


def test_closing_wakes_who_receives_and_who_waits_for_memory_at_either_end() -> None:
    for closes in (0, 1):
        with leaves_nothing():
            here, there = linked(MIB)
            here.send(block(2 * MIB))
            kept = there.receive()
            waits = about_to_wait(here)
            waiting = [in_a_thread(partial(here.send, block(2 * MIB)))]
            waiting += [in_a_thread(end.receive) for end in (here, there)]
            assert waits.wait(5)
            (here, there)[closes].close()
            for call in waiting:
                assert isinstance(joined(call), LinkEnded)
            here.close()
            there.close()
            assert kept.message[0] == 7
            del kept


def test_arrays_outlive_the_link(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send(block(MIB, 4))
    message, lease, _ = there.receive()
    here.close()
    there.close()
    lease.release()
    message[0] = 1
    assert (message[0], message[-1]) == (1, 4)
    for end in (here, there):
        with pytest.raises(LinkEnded):
            end.send("too late")
        with pytest.raises(LinkEnded):
            end.receive()
        assert end.wait(0)


@pytest.mark.parametrize("cut", [1, 20, 36, 60])
def test_an_end_inside_a_message_is_an_end_of_the_link(cut: int) -> None:
    here, wire = socket.socketpair()
    with leaves_nothing():
        spy, far = socket.socketpair()
        sender = Exchange(spy, MIB)
        sender.send(list(range(20)))
        data = far.recv(1 << 16)
        sender.close()
        far.close()
        receiver = Exchange(here, MIB)
        wire.sendall(data[:cut])
        wire.close()
        with pytest.raises(LinkEnded):
            receiver.receive()
        receiver.close()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 400 Bad Request".ljust(exchange._HEAD.size),
        exchange._HEAD.pack(exchange._MAGIC, 0, 0, 0, -1, 0, 0),
        exchange._HEAD.pack(exchange._MAGIC, 1, 1, 0, -1, 0, 0),
        exchange._HEAD.pack(exchange._MAGIC, 1 << 30, 0, 0, -1, 0, 0),
        exchange._HEAD.pack(exchange._MAGIC, 1, 0, 0, -1, 0, 1 << 60) + (64).to_bytes(8, "little"),
        exchange._HEAD.pack(exchange._MAGIC, 1, 0, 0, -1, 0, 64) + (-64).to_bytes(8, "little", signed=True),
        exchange._HEAD.pack(exchange._MAGIC, 1, 0, 0, 5, 0, 64) + (64).to_bytes(8, "little"),
    ],
)
def test_what_is_no_message_ends_the_link_and_allocates_nothing(head: bytes) -> None:
    here, wire = socket.socketpair()
    receiver = Exchange(here, MIB)
    wire.sendall(head + bytes(256))
    with pytest.raises(LinkEnded, match=r"its header is invalid|not enough memory|unknown block"):
        receiver.receive()
    receiver.close()
    wire.close()


def test_descriptors_are_closed_when_programs_are_started(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send(block())
    there.receive()
    sockets = [here._sock, there._sock, here._lender._ear]
    bell = there._borrower._bell
    assert bell is not None
    assert not any(os.get_inheritable(sock.fileno()) for sock in [*sockets, bell._wire])


def test_blocks_hold_no_descriptors_once_they_are_mapped(ends: tuple[Exchange, Exchange]) -> None:
    here, there = ends
    here.send(block())
    kept = [there.receive().message]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        here.send(block())
        kept.append(there.receive().message)
    assert len(os.listdir("/proc/self/fd")) == before


# -- forks


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_lets_go_of_the_link_and_gives_none_of_its_parents_memory_back() -> None:
    with leaves_nothing():
        here, there = linked(4 * MIB)
        here.send(block(MIB, 6))
        kept = there.receive()
        pid = os.fork()
        if pid == 0:
            try:
                message = kept.message
                del kept
                right = message[0] == 6
                del message
                gc.collect()
                here.send("nothing")
            except LinkEnded:
                os._exit(0 if right else 2)
            finally:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        here.send(block(MIB, 1))
        assert kept.message[0] == 6
        assert here._lender._next_number == 2
        pid = os.fork()
        if pid == 0:
            signal_wait()
        try:
            there.close()  # the fork does not keep it open
            with pytest.raises(LinkEnded):
                here.receive()
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        here.close()
        del kept


def signal_wait() -> None:
    import signal

    signal.pause()


def test_link_ended_says_that_it_is_an_end_of_file() -> None:
    assert issubclass(LinkEnded, EOFError)
    assert isinstance(pickle.loads(pickle.dumps(LinkEnded("gone"))), LinkEnded)


class Pieces:
    """Bytes that are still in pieces."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.nbytes = sum(sizes)

    def write_to(self, memory: NDArray[np.uint8]) -> None:
        memory[:] = np.repeat(np.arange(len(self.sizes), dtype=np.uint8), self.sizes)

    def whole(self) -> list[int]:
        memory = np.empty(self.nbytes, np.uint8)
        self.write_to(memory)
        return memory.tolist()


@pytest.mark.parametrize("scale", [1, BLOCK_NBYTES], ids=["through the socket", "in a block"])
@pytest.mark.parametrize("beside", [0, 1, APART_NBYTES], ids=lambda nbytes: f"{nbytes} bytes beside")
def test_what_is_unwritten_is_put_together_where_it_arrives(
    ends: tuple[Exchange, Exchange], scale: int, beside: int
) -> None:
    here, there = ends
    sent = [Pieces(scale, 2 * scale), Pieces(), Pieces(1, 0, 3)]
    thread, _ = in_a_thread(lambda: here.send(("rows", block(beside)), sent))
    received = there.receive()
    thread.join(10)
    assert received.message[0] == "rows"
    assert received.message[1].tolist() == [7] * beside
    assert [memory.tolist() for memory in received.written] == [pieces.whole() for pieces in sent]
    assert received.lease.nbytes == (rounded(received.lease.nbytes - 64) if scale == BLOCK_NBYTES else 0)


def test_an_error_while_writing_is_raised_and_ends_the_link(ends: tuple[Exchange, Exchange]) -> None:
    class Broken(Pieces):
        def write_to(self, memory: NDArray[np.uint8]) -> None:
            raise MemoryError("no more")

    here, there = ends
    with pytest.raises(MemoryError, match="no more"):
        here.send("lost", [Broken(BLOCK_NBYTES)])
    for use in (partial(here.send, "next"), there.receive):
        with pytest.raises(LinkEnded):
            use()
