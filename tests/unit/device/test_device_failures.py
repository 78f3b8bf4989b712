"""What a GPU can refuse, and what becomes of the batches then: over a fake CuPy, without a GPU."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from fake_cupy import FakeCuda, install

from aiostream_data import Dataset
from aiostream_data.device import forks
from aiostream_data.device.backend import StreamRef
from aiostream_data.device.cuda_opening import describe_gpus
from aiostream_data.device.cuda_status import mismatch, sentence_of, sticky
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import (
    DeviceError,
    DeviceMemoryError,
    DeviceUnavailableError,
    ForkedPipelineError,
    GraphCaptureError,
    LoaderClosedError,
    MemoryBudgetError,
    MissingExtraError,
    PinningError,
)

ROWS = 64
NBYTES = ROWS * 8


@pytest.fixture(autouse=True)
def nothing_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(forks._HISTORY, "cuda_started_in", None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch, FakeCuda())


def put(stage: DeviceStage, number: int, rows: int = ROWS) -> DeviceBatch:
    batch = stage.put(np.full(rows, number))
    assert batch is not None
    return batch


# -- no GPU, or none that can be used


def without_driver(fake: FakeCuda) -> None:
    fake.driver_status, fake.driver_version = 35, 0


def test_no_driver_is_said_and_auto_is_the_host(fake: FakeCuda) -> None:
    without_driver(fake)
    with pytest.raises(
        DeviceUnavailableError, match=r"'cuda:0' cannot be used: no NVIDIA driver is installed. Install"
    ) as raised:
        open_backend("cuda:0")
    assert raised.value.absent
    assert raised.value.status == 35
    assert open_backend("auto").device == "cpu"


@pytest.mark.parametrize(
    ("driver", "runtime", "said"),
    [
        (
            12040,
            13020,
            r"built for CUDA 13\.2, .* supports CUDA 12\.4\. Replace CuPy \(pip install 'aiostream-data\[cupy12\]'\)",
        ),
        (11040, 12090, r"built for CUDA 12\.9, .* supports CUDA 11\.4\. Update the driver"),
        (13000, 13020, r"built for CUDA 13\.2, .* supports CUDA 13\.0\. Update the driver"),
        (14000, 15000, r"supports CUDA 14\.0\. Replace CuPy \(pip install 'aiostream-data\[cupy13\]'\)"),
    ],
)
def test_a_driver_too_old_for_cupy_is_told_with_both_versions_and_what_to_install(
    fake: FakeCuda, driver: int, runtime: int, said: str
) -> None:
    fake.driver_status, fake.driver_version, fake.runtime_version = 35, driver, runtime
    with pytest.raises(DeviceUnavailableError, match=said) as raised:
        open_backend("cuda")
    assert not raised.value.absent


def test_versions_that_cannot_be_told_leave_the_message_general() -> None:
    assert mismatch(None, 13000) == mismatch(12000, None) == sentence_of(35)


@pytest.mark.parametrize(
    ("status", "said"),
    [(3, "forked"), (46, "compute mode"), (802, "fabric manager"), (803, "Restart"), (999, "Xid"), (77, "status 77")],
)
def test_a_gpu_that_is_there_and_cannot_be_used_is_an_error_for_auto_too(
    fake: FakeCuda, status: int, said: str
) -> None:
    fake.driver_status = status
    for name in ("cuda:0", "auto"):
        with pytest.raises(DeviceUnavailableError, match=f"'{name}' cannot be used: .*{said}") as raised:
            open_backend(name)
        assert (raised.value.absent, raised.value.status) == (False, status)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder from which CuPy is imported, if at all; one that is really installed is out of sight."""
    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "cupy"}
    for name in loaded:
        del sys.modules[name]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(each for each in sys.path if not Path(each, "cupy").is_dir())])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        del sys.modules[name]
    sys.modules.update(loaded)


def test_a_cupy_that_does_not_import_is_not_taken_for_one_that_is_not_installed(site: Path) -> None:
    (site / "cupy").mkdir()
    (site / "cupy" / "__init__.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    for name in ("cuda", "auto"):
        with pytest.raises(
            DeviceUnavailableError, match=r"CuPy is installed but cannot be imported: libcudart\.so\.13"
        ):
            open_backend(name)


def test_a_cupy_of_which_a_part_is_missing_is_told_by_that_part(site: Path) -> None:
    (site / "cupy").mkdir()
    (site / "cupy" / "__init__.py").write_text("import no_such_part_of_cupy")
    with pytest.raises(DeviceUnavailableError, match="no_such_part_of_cupy"):
        open_backend("cuda")


def test_an_empty_folder_that_an_uninstalled_cupy_left_is_no_cupy(site: Path) -> None:
    (site / "cupy").mkdir()
    with pytest.raises(MissingExtraError, match="cupy13"):
        open_backend("cuda")
    assert open_backend("auto").device == "cpu"


def test_a_cupy_for_rocm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.is_hip = True
    install(monkeypatch, fake)
    with pytest.raises(DeviceUnavailableError, match="ROCm"):
        open_backend("cuda")


def test_a_gpu_that_gives_no_context_is_unavailable_and_a_full_one_is_full(fake: FakeCuda) -> None:
    fake.failing["free"] = 46
    with pytest.raises(
        DeviceUnavailableError, match="'cuda:1' cannot be used: cuda:1: could not create a context"
    ) as raised:
        open_backend("cuda:1")
    assert raised.value.status == 46
    fake.failing["free"] = 2
    with pytest.raises(DeviceMemoryError, match="cuda:1: could not create a context"):
        open_backend("cuda:1")


def test_a_process_that_is_shown_one_gpu_takes_it_whatever_its_rank(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    fake.devices = 1
    assert open_backend("cuda").device == "cuda:0"
    with pytest.raises(DeviceUnavailableError, match=r"'cuda:3' cannot be used: this process sees 1 GPU\(s\)"):
        open_backend("cuda:3")
    fake.devices = 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(DeviceUnavailableError, match=r"by LOCAL_RANK=3.*sees 2 .*CUDA_VISIBLE_DEVICES='4,5'"):
        open_backend("cuda")
    fake.devices = 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceUnavailableError, match=r"shows no GPU to this process \(CUDA_VISIBLE_DEVICES=''\)"):
        open_backend("cuda")


def test_one_line_says_what_is_there_or_what_is_in_the_way(fake: FakeCuda) -> None:
    fake.runtime_version = 12090
    assert describe_gpus() == "2 GPU(s), driver for CUDA 13.0, CuPy for CUDA 12.9"
    without_driver(fake)
    assert "no NVIDIA driver is installed" in describe_gpus()


def test_every_status_has_a_sentence_without_an_end_and_sticky_ones_say_that_nothing_else_helps() -> None:
    for status in range(1_000):
        said = sentence_of(status)
        assert said, status
        assert not said.endswith("."), status
        assert said.endswith("restart the process") == sticky(status)


@pytest.mark.parametrize("status", [226, 721, 810, 911])
def test_page_locking_that_finds_the_process_unusable_is_no_refusal(fake: FakeCuda, status: int) -> None:
    assert sticky(status)
    assert "CUDA reports status" not in sentence_of(status)
    backend = open_backend("cuda:0")
    fake.failing["hostRegister"] = status
    with pytest.raises(DeviceError) as caught:
        backend.adopt_shared(np.zeros(512, np.uint8))
    assert caught.value.status == status
    backend.close()


# -- forks


def in_child(work: Any) -> int:
    """Return the exit code of a forked child that runs ``work``: 0 when it raised nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that fork and threads do not mix: the point
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX says it too, where it is loaded
        child = os.fork()
    if child == 0:
        outcome = 1
        try:
            work()
            outcome = 0
        finally:
            os._exit(outcome)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_of_a_process_that_opened_a_gpu_is_told_so_at_once_for_auto_too(fake: FakeCuda) -> None:
    open_backend("cuda:0")

    def open_both() -> None:
        for name in ("cuda:1", "auto"):
            with pytest.raises(ForkedPipelineError, match="forked after CUDA had started"):
                open_backend(name)
        assert open_backend("cpu").device == "cpu"

    assert in_child(open_both) == 0


def test_a_child_frees_nothing_on_the_gpu_of_its_parent(fake: FakeCuda) -> None:
    stages = [DeviceStage(open_backend("cuda:0"))]
    put(stages[0], 5).discard()
    before = list(fake.freed_on)

    def drop() -> None:
        stages.clear()
        gc.collect()
        assert fake.freed_on == before

    assert in_child(drop) == 0
    stages[0].close()
    stages.clear()
    gc.collect()
    assert {"Memory", "Stream", "Event"} <= {kind for kind, _ in fake.freed_on[len(before) :]}


def test_a_child_may_open_a_gpu_that_its_parent_never_opened(fake: FakeCuda) -> None:
    dataset = Dataset.range(10).batch(5).to_device("cuda:0")

    def take_all() -> None:
        assert [batch.tolist() for batch in dataset] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    assert in_child(take_all) == 0
    assert in_child(lambda: [open_backend("cuda")]) == 0
    take_all()
    assert in_child(take_all) == 1


def test_an_attempt_that_found_no_driver_forbids_a_child_nothing(fake: FakeCuda) -> None:
    without_driver(fake)
    assert open_backend("auto").device == "cpu"
    assert in_child(lambda: open_backend("auto")) == 0


# -- device memory


def test_what_cupys_pool_lets_go_is_used_before_anything_is_given_up(fake: FakeCuda) -> None:
    fake.room, fake.pooled = {"Memory": 0}, 4 * NBYTES
    with DeviceStage(open_backend("cuda:0"), device_slots=3) as stage:
        held = [put(stage, number) for number in range(3)]
        assert [int(batch.materialise()[0]) for batch in held] == [0, 1, 2]
        assert stage.stats().ring.device_slots == 3
    assert fake.names().count("free_all_blocks") == 1


def test_slots_without_room_are_given_up_down_to_two_with_one_warning(fake: FakeCuda) -> None:
    fake.room["Memory"] = 2 * NBYTES + 100
    with DeviceStage(open_backend("cuda:0"), device_slots=5) as stage:
        first, second = put(stage, 0), put(stage, 1)
        with pytest.warns(RuntimeWarning, match=rf"for 5 device slots of {NBYTES} bytes \(100 bytes") as warned:
            assert stage.put(np.zeros(ROWS), timeout_s=0) is None
        assert len(warned) == 1
        ring = stage.stats().ring
        assert (ring.device_slots, ring.device_slots_asked) == (2, 5)
        for number, batch in enumerate((first, second)):
            assert (batch.materialise() == number).all()
        for number in range(2, 20):
            assert (put(stage, number).materialise() == number).all()


def test_no_room_for_two_slots_is_an_error_with_need_free_and_depth(fake: FakeCuda) -> None:
    fake.room["Memory"] = NBYTES + 7
    with DeviceStage(open_backend("cuda:0"), device_slots=3) as stage:
        kept = put(stage, 0)
        with (
            pytest.warns(RuntimeWarning, match="Continuing with 2 slots"),
            pytest.raises(DeviceMemoryError, match="for 2 device slots of 512 bytes") as raised,
        ):
            stage.put(np.zeros(ROWS))
        assert (raised.value.need, raised.value.free, raised.value.depth) == (NBYTES, 7, 2)
        assert (kept.materialise() == 0).all(), "what was there before is not lost"


def test_whoever_asks_for_one_slot_gets_along_with_one(fake: FakeCuda) -> None:
    fake.room["Memory"] = NBYTES
    with DeviceStage(open_backend("cuda:0"), device_slots=1) as stage:
        for number in range(3):
            assert (put(stage, number).materialise() == number).all()


def test_not_one_slot_is_an_error_without_a_warning_before_it(fake: FakeCuda) -> None:
    fake.room["Memory"] = 0
    with DeviceStage(open_backend("cuda:0")) as stage, pytest.raises(DeviceMemoryError, match="for one device slot"):
        stage.put(np.zeros(ROWS))


def test_a_batch_for_which_the_consumer_has_no_memory_is_still_there_afterwards(fake: FakeCuda) -> None:
    with DeviceStage(open_backend("cuda:0")) as stage:
        batch = put(stage, 7)
        fake.failing["alloc"] = 2
        with pytest.raises(DeviceMemoryError, match="could not allocate 512 bytes for a batch") as raised:
            batch.materialise()
        assert (raised.value.need, raised.value.depth) == (NBYTES, None)
        fake.failing.clear()
        assert (batch.materialise() == 7).all()


def test_the_errors_keep_their_fields_when_they_are_pickled() -> None:
    error = pickle.loads(pickle.dumps(DeviceMemoryError("full", need=3, free=2, depth=1)))
    assert (str(error), error.need, error.free, error.depth) == ("full", 3, 2, 1)
    assert pickle.loads(pickle.dumps(PinningError("refused", need=3))).need == 3
    assert pickle.loads(pickle.dumps(MemoryBudgetError("small"))).args == ("small",)
    assert pickle.loads(pickle.dumps(DeviceError("failed", status=700))).status == 700
    assert pickle.loads(pickle.dumps(DeviceUnavailableError("none", absent=True))).absent


# -- page-locking


@pytest.mark.parametrize("status", [1, 2, 304, 801])
def test_memory_that_cannot_be_page_locked_is_an_error_that_says_what_to_do(fake: FakeCuda, status: int) -> None:
    fake.failing["PinnedMemory"] = status
    with DeviceStage(open_backend("cuda:0")) as stage:
        for _ in range(5):
            with pytest.raises(PinningError, match=r"page-lock 512 bytes .*allow_pageable=True") as raised:
                stage.put(np.zeros(ROWS))
            assert raised.value.need == NBYTES
        fake.failing.clear()
        assert (put(stage, 3).materialise() == 3).all(), "no slot was lost"
        assert stage.stats().ring.pinned_nbytes == stage.stats().ring.host_nbytes == NBYTES


def test_plain_memory_is_used_where_it_is_allowed_and_said_once(fake: FakeCuda) -> None:
    fake.failing["PinnedMemory"] = 2
    with DeviceStage(open_backend("cuda:0"), host_slots=2, allow_pageable=True) as stage:
        with pytest.warns(RuntimeWarning, match="pageable memory, as allow_pageable=True permits") as warned:
            first = put(stage, 0)
        assert len(warned) == 1
        assert (first.materialise() == 0).all()
        for number in range(1, 6):
            assert (put(stage, number).materialise() == number).all()
        ring = stage.stats().ring
        assert ring.pinned_nbytes == 0
        assert ring.host_nbytes >= NBYTES
    assert fake.names().count("PinnedMemory") == 1, "the driver is not asked again for every slot"
    assert fake.names().count("synchronize") >= 4, "a slot is joined before it is written again, whatever it is made of"


def test_a_failed_device_is_not_taken_for_a_refusal_to_page_lock(fake: FakeCuda) -> None:
    fake.failing["PinnedMemory"] = 719
    with DeviceStage(open_backend("cuda:0"), allow_pageable=True) as stage:
        with pytest.raises(DeviceError, match="cudaError719") as raised:
            stage.put(np.zeros(ROWS))
        assert raised.value.status == 719


def test_on_the_host_nothing_is_page_locked() -> None:
    with DeviceStage(open_backend("cpu")) as stage:
        put(stage, 1).materialise()
        assert stage.stats().ring.pinned_nbytes == 0


# -- a device that fails for good


def test_after_a_sticky_error_everybody_is_told_the_first_cause_and_closing_ends(fake: FakeCuda) -> None:
    stage = DeviceStage(open_backend("cuda:0"), host_slots=1, device_slots=2)
    first, second = put(stage, 0), None
    fake.failing["synchronize"] = 700
    with pytest.raises(DeviceError, match="cudaError700"):
        second = put(stage, 1)  # waits for the only host slot
    assert second is None
    for call in (lambda: stage.put(np.zeros(ROWS)), first.materialise, lambda: stage.put(np.zeros(1))):
        with pytest.raises(DeviceError, match=r"failed earlier: cuda:0: could not wait for an event: cudaError700"):
            call()
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.5)
    with pytest.raises((DeviceError, LoaderClosedError)):
        stage.put(np.zeros(1))


def test_a_put_that_waits_hears_of_a_failure_on_the_consumers_thread(fake: FakeCuda) -> None:
    stage = DeviceStage(open_backend("cuda:0"), host_slots=3, device_slots=1)
    first = put(stage, 0)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            stage.put(np.zeros(ROWS))
        except BaseException as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    fake.failing["streamWaitEvent"] = 719
    with pytest.raises(DeviceError, match="cudaError719"):
        first.materialise()
    waiting.join(30)
    assert [type(error) for error in raised] == [DeviceError]
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.5)


def test_a_consumers_kernel_that_broke_the_device_is_told_by_the_next_batch_and_fails_the_stage(fake: FakeCuda) -> None:
    stage = DeviceStage(open_backend("cuda:0"))
    first, second = put(stage, 0), put(stage, 1)
    fake.failing["alloc"] = 700
    with pytest.raises(DeviceError, match=r"not necessarily of this library.*restart the process"):
        first.materialise()
    with pytest.raises(DeviceError, match="failed earlier"):
        second.materialise()
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.5)


def test_closing_does_not_wait_for_a_thread_that_is_stuck_in_the_driver_with_the_slots_locked(fake: FakeCuda) -> None:
    stage = DeviceStage(open_backend("cuda:0"))
    put(stage, 0)
    inside, leave = threading.Event(), threading.Event()

    def stuck() -> None:
        with stage.state.lock:
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=stuck)
    holder.start()
    assert inside.wait(30)
    try:
        with pytest.warns(ResourceWarning, match="bytes were not freed"):
            stage.close(timeout_s=0.05)
        with pytest.raises(DeviceError, match=r"did not return for 0\.05 s"):
            stage.put(np.zeros(1))
    finally:
        leave.set()
        holder.join()


# -- CUDA graphs


def test_a_batch_is_not_taken_out_on_a_stream_that_is_captured_and_is_there_afterwards(fake: FakeCuda) -> None:
    with DeviceStage(open_backend("cuda:0")) as stage:
        batch = put(stage, 5)
        fake.capturing.add(0)
        before = [name for name in fake.names() if name != "streamIsCapturing"]
        with pytest.raises(GraphCaptureError, match=r"into.*capture_error_mode='thread_local'"):
            batch.materialise()
        assert [name for name in fake.names() if name != "streamIsCapturing"] == before, "nothing reached the graph"
        fake.capturing.clear()
        assert (batch.materialise() == 5).all()
        assert stage.put(np.zeros(ROWS)) is not None


@pytest.mark.parametrize("status", [900, 901, 906, 908])
def test_the_legacy_stream_counts_as_captured_while_a_stream_that_it_waits_for_is(fake: FakeCuda, status: int) -> None:
    backend = open_backend("cuda:0")
    fake.failing["streamIsCapturing"] = status
    assert backend.capturing(StreamRef(0))


def test_a_capture_that_has_failed_is_one_until_it_is_ended(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    fake.invalidated.add(5)
    assert backend.capturing(StreamRef(5))
    assert not backend.capturing(StreamRef(6))


def test_a_device_that_failed_is_not_taken_for_a_capture(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    fake.failing["streamIsCapturing"] = 700
    with pytest.raises(DeviceError, match="cudaError700"):
        backend.capturing(StreamRef(0))


def test_a_stage_whose_own_call_breaks_on_a_capture_says_how_to_capture(fake: FakeCuda) -> None:
    stage = DeviceStage(open_backend("cuda:0"))
    fake.failing["memcpyAsync"] = 901
    with pytest.raises(GraphCaptureError, match="thread_local"):
        stage.put(np.zeros(ROWS))
    with pytest.raises(DeviceError, match=r"failed earlier.*thread_local"):
        stage.put(np.zeros(ROWS))
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.5)


def test_a_loader_and_the_capture_of_another_thread_in_global_mode_leave_each_other_alone(fake: FakeCuda) -> None:
    dataset = Dataset.range(6 * ROWS).batch(ROWS).to_device("cuda:0", depth=2)
    taken: list[Any] = []

    def consume() -> None:
        with dataset.open() as loader:
            taken.extend(loader)

    fake.capturer = threading.get_ident()  # from before the first slot is allocated until all is freed
    with ThreadPoolExecutor(1) as thread:
        thread.submit(consume).result(30)
    fake.capturer = None
    assert fake.spoilt_by == []
    assert np.concatenate(taken).tolist() == list(range(6 * ROWS))


def test_a_thread_keeps_its_setting_for_captures_of_other_threads(fake: FakeCuda) -> None:
    with DeviceStage(open_backend("cuda:0")) as stage:
        put(stage, 5).materialise()
        assert fake.here.capture_mode == 0
        batch = put(stage, 6)
        fake.failing["alloc"] = 2
        with pytest.raises(DeviceMemoryError):
            batch.materialise()
        assert fake.here.capture_mode == 0


# -- several devices, and the engine


def test_two_stages_in_one_process_keep_their_devices_apart(fake: FakeCuda) -> None:
    with DeviceStage(open_backend("cuda:0")) as left, DeviceStage(open_backend("cuda:1")) as right:
        for number in range(8):
            batches = [put(left, number), put(right, -number)]
            assert [int(batch.materialise()[0]) for batch in batches] == [number, -number]
    for device in (0, 1):
        made = [entry[0] for entry in fake.log if entry[0] in ("Memory", "PinnedMemory") and entry[2] == device]
        assert made.count("Memory") >= 2
        assert made.count("PinnedMemory") >= 1


def test_the_engines_event_loop_never_calls_the_device(fake: FakeCuda) -> None:
    taken = [batch.tolist() for batch in Dataset.range(40).batch(4).to_device("cuda:1")]
    assert taken == np.arange(40).reshape(10, 4).tolist()
    here = threading.current_thread().name
    assert "eventQuery" in fake.names(), "closing asked whether copies have ended"
    assert here in fake.threads, "batches were taken out"
    assert all(name.startswith("asd-") for name in fake.threads - {here}), fake.threads


def test_an_error_of_the_device_reaches_the_training_loop_with_the_stage(fake: FakeCuda) -> None:
    fake.failing["memcpyAsync"] = 719
    with (
        pytest.warns(ResourceWarning, match="bytes were not freed"),
        pytest.raises(DeviceError, match="cudaError719") as raised,
    ):
        list(Dataset.range(40).batch(4).to_device("cuda:0"))
    assert any("to_device" in note for note in raised.value.__notes__)


def test_two_data_sets_on_two_devices_run_in_one_program(fake: FakeCuda) -> None:
    numbers = Dataset.range(12).batch(3)
    with numbers.to_device("cuda:0").open() as left, numbers.to_device("cuda:1").open() as right:
        pairs = [(one.tolist(), other.tolist()) for one, other in zip(left, right, strict=True)]
    assert [one for one, _ in pairs] == [other for _, other in pairs]
    assert len(pairs) == 4


def test_plain_memory_is_allowed_for_a_data_set_and_its_statistics_say_so(fake: FakeCuda) -> None:
    fake.failing["PinnedMemory"] = 2
    numbers = Dataset.range(40).batch(4)
    with pytest.raises(PinningError, match="allow_pageable=True"):
        list(numbers.to_device("cuda:0"))
    warned = pytest.warns(RuntimeWarning, match="pageable memory")  # from the opening on, since batches are made ahead
    with warned, numbers.to_device("cuda:0", allow_pageable=True).open() as loader:
        taken = [batch.tolist() for batch in loader]
        (copies,) = loader.stats().devices
        assert "NOT page-locked" in str(loader.report())
    assert taken == np.arange(40).reshape(10, 4).tolist()
    assert not copies.pinned
    assert copies.host_nbytes > 0
    assert (copies.device_slots, copies.device_slots_asked) == (3, 3)


CALLS = (
    "free", "Stream", "PinnedMemory", "Memory", "alloc", "Event", "eventRecord", "memcpyAsync", "streamWaitEvent",
    "synchronize", "streamIsCapturing",
)  # fmt: skip


def train(dataset: Dataset[Any], debug: bool) -> None:
    with dataset.open(debug=debug) as loader:
        for batch in loader:
            if isinstance(batch, DeviceBatch):
                batch.arrays()
                batch.release()


@pytest.mark.filterwarnings(
    "ignore:device stage on cuda:ResourceWarning", "ignore:not enough memory on cuda:RuntimeWarning"
)
@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize(
    ("status", "handoff"), [(1, "copy"), (2, "lease"), (719, "copy"), (719, "lease"), (901, "copy")]
)
@pytest.mark.parametrize("call", CALLS)
def test_whatever_call_fails_the_training_loop_gets_a_typed_error_and_closing_ends(
    fake: FakeCuda, call: str, status: int, handoff: Literal["copy", "lease"], debug: bool
) -> None:
    fake.failing[call] = status
    dataset = Dataset.range(400).batch(4).to_device("cuda:0", depth=2, handoff=handoff)
    if call == "alloc" and handoff == "lease":  # which takes no memory beside its slot
        train(dataset, debug)
        return
    with pytest.raises((DeviceError, DeviceMemoryError, DeviceUnavailableError, GraphCaptureError)) as raised:
        train(dataset, debug)
    found: BaseException | None = raised.value
    causes = []
    while found is not None:
        causes.append(str(found))
        found = found.__cause__
    assert any(f"cudaError{status}" in each or "is being captured" in each for each in causes), causes


@pytest.mark.parametrize("in_the_way", ["capture", "no memory"])
def test_a_batch_that_could_not_be_handed_over_is_the_next_one_of_the_loader(fake: FakeCuda, in_the_way: str) -> None:
    with Dataset.range(24).batch(4).to_device("cuda:0").open() as loader:
        first = next(iter(loader)).tolist()
        if in_the_way == "capture":
            fake.capturing.add(0)
        else:
            fake.failing["alloc"] = 2
        for _ in range(3):
            with pytest.raises((GraphCaptureError, DeviceMemoryError)):
                next(iter(loader))
        fake.capturing.clear()
        fake.failing.clear()
        assert [first, *(batch.tolist() for batch in loader)] == np.arange(24).reshape(6, 4).tolist()
