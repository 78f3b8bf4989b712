"""A loader that gives nothing says so once, and which stage, function and record keep it; and no wait is endless."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import logging
import math
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

import pytest
from gate import Gate
from http_server import HttpFault, HttpObjects
from leaks import leaves_nothing

import aiostream_data
import aiostream_data as asd
from aiostream_data.errors import PlanError
from aiostream_data.metrics.stuck import StageState, find_stuck
from aiostream_data.storage import gcs, http, s3

STALL_S = 0.2
TELLS_S = 10.0
"""How long a test waits for what must come, on a machine that may be busy."""


@contextmanager
def told() -> Iterator[Callable[[], str]]:
    """Lend a function that waits for the next warning of the package, and returns it."""
    messages: SimpleQueue[str] = SimpleQueue()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert record.levelno == logging.WARNING
            messages.put(record.getMessage())

    handler = Keep()
    logger = logging.getLogger("aiostream_data")
    logger.addHandler(handler)
    try:
        yield lambda: messages.get(timeout=TELLS_S)
    finally:
        logger.removeHandler(handler)


TWENTY = asd.Dataset.range(20)

STUCK: dict[str, tuple[Callable[[Gate], asd.Dataset[Any]], str, str]] = {
    "map": (lambda gate: TWENTY.map(gate.check), "map", "check"),
    "concurrent map": (lambda gate: TWENTY.map(gate.check, concurrency=3), "map", "check"),
    "map below a batch": (lambda gate: TWENTY.map(gate.check).batch(4).prefetch(2), "map + batch", "check"),
    "map above a slow one": (
        lambda gate: TWENTY.map(gate.check_later).map(abs, concurrency=2).shuffle(4),
        "map",
        "check_later",
    ),
    "filter": (lambda gate: TWENTY.filter(gate.is_past), "filter", "is_past"),
    "coroutine": (lambda gate: TWENTY.map(gate.check_later), "map", "check_later"),
    "blocked loop": (lambda gate: TWENTY.map(gate.block_the_loop), "map", "block_the_loop"),
    "flat_map": (lambda gate: TWENTY.flat_map(lambda x: [gate.check(x)]), "flat_map", "<lambda>"),
    "inner map": (
        lambda gate: asd.Dataset.range(1).flat_map(lambda _: TWENTY.map(gate.check)).batch(3),
        "flat_map/map",
        "check",
    ),
    "generator": (lambda gate: asd.Dataset.from_generator(gate.generate).map(abs), "from_generator", "generate"),
    "async generator": (
        lambda gate: asd.Dataset.from_generator(gate.generate_async).batch(2),
        "from_generator + batch",
        "generate_async",
    ),
    "second of a zip": (lambda gate: asd.Dataset.zip(TWENTY, TWENTY.map(gate.check)), "map", "check"),
    "repeated": (lambda gate: TWENTY.map(gate.check).repeat(2).batch(2), "map", "check"),
    "cached": (lambda gate: TWENTY.map(gate.check).cache(), "map", "check"),
    "concatenated": (lambda gate: TWENTY.take(2).concatenate(TWENTY.map(gate.check)), "map", "check"),
}


@pytest.mark.parametrize(("build", "stage", "function"), STUCK.values(), ids=STUCK)
def test_r49_the_log_names_the_stage_and_the_function_that_are_stuck(
    build: Callable[[Gate], asd.Dataset[Any]], stage: str, function: str
) -> None:
    gate = Gate()
    with leaves_nothing(), told() as next_message, build(gate).open(stall_after=STALL_S) as loader:
        received: list[Any] = []
        consumer = threading.Thread(target=lambda: received.extend(loader))
        consumer.start()
        message = next_message()
        gate.opened.set()
        consumer.join(TELLS_S)
    assert received
    first, waited, stuck, *_ = message.splitlines()
    assert first.startswith("no element for ")
    assert waited.startswith("the consumer has waited for ")
    assert stuck.startswith(f"stuck: {stage}, written at ")
    assert __file__.rpartition("/")[2] in stuck
    assert f", in {function}\n" in message  # in a stack, of a thread or a task


@pytest.mark.parametrize("how", ["map", "concurrent map", "coroutine", "blocked loop", "filter"])
def test_r49_the_log_names_the_record_and_how_long_it_has_taken(how: str) -> None:
    gate = Gate()
    with told() as next_message, STUCK[how][0](gate).open(stall_after=STALL_S) as loader:
        consumer = threading.Thread(target=lambda: list(loader))
        consumer.start()
        message = next_message()
        gate.opened.set()
        consumer.join(TELLS_S)
    assert "range record 7, " in message.splitlines()[2]
    assert "\nfunctions that run now:\n" in message
    assert ("has not answered" in message) == (how == "blocked loop")


def wait_for_file(folder: str, number: int) -> int:
    """Say by a file that record 7 has begun, and wait for another file."""
    if number == 7:
        Path(folder, "begun").touch()
        deadline = perf_counter() + TELLS_S
        while not Path(folder, "opened").exists() and perf_counter() < deadline:
            time.sleep(0.01)
    return number


IN_PROCESSES: dict[str, tuple[Callable[[Any], asd.Dataset[Any]], str]] = {
    "process map": (lambda function: TWENTY.map(function, executor="process", concurrency=2), "map"),
    "in_subprocess": (lambda function: TWENTY.map(function).batch(20).in_subprocess(), "in_subprocess"),
}


@pytest.mark.parametrize(("build", "stage"), IN_PROCESSES.values(), ids=IN_PROCESSES)
def test_r49_the_dump_tells_what_worker_processes_do(
    build: Callable[[Any], asd.Dataset[Any]], stage: str, tmp_path: Path
) -> None:
    dataset = build(partial(wait_for_file, str(tmp_path)))
    with leaves_nothing(), dataset.open() as loader:
        consumer = threading.Thread(target=lambda: list(loader))
        consumer.start()
        deadline = perf_counter() + TELLS_S
        while not (tmp_path / "begun").exists() and perf_counter() < deadline:
            time.sleep(0.01)
        text = ""
        while "\nstuck: " not in text and perf_counter() < deadline:  # the other worker may just be starting
            text = loader.dump()
        (tmp_path / "opened").touch()
        consumer.join(TELLS_S)
    assert text.splitlines()[1].startswith(f"stuck: {stage}, written at ")
    assert "in wait_for_file\n" in text.partition("\nworker processes:\n")[2]


def test_r49_the_dump_tells_queues_memory_tasks_and_threads_and_who_has_nothing_to_do() -> None:
    gate = Gate()
    dataset = asd.Dataset.from_generator(gate.generate).map(abs, concurrency=2).batch(2).prefetch(3)
    with told() as next_message, dataset.open(stall_after=STALL_S) as loader:
        consumer = threading.Thread(target=lambda: list(loader), name="the trainer")
        consumer.start()
        message = next_message()
        gate.opened.set()
        consumer.join(TELLS_S)
    lines = message.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["stages, sources first:", "memory:", "tasks of the event loop:", "threads:"]
    stages = lines[lines.index("stages, sources first:") + 1 : lines.index("memory:")]
    assert [line.split()[0] for line in stages] == ["from_generator", "map", "prefetch"]
    assert "works" in stages[0]
    assert all("waits for input" in line for line in stages[1:])
    for thread in ("aiostream-engine", "asd-from_generator-0", "the trainer"):
        assert f"  {thread}:" in lines
    assert any(line.startswith("  idle: asd-") for line in lines)
    assert "MiB held" in message


def test_r49_one_report_for_every_stall() -> None:
    gates = [threading.Event(), threading.Event()]

    async def stall_twice(number: int) -> int:
        while number in (3, 6) and not gates[number // 3 - 1].is_set():
            await asyncio.sleep(0.01)
        return number

    with told() as next_message, asd.Dataset.range(9).map(stall_twice).open(stall_after=STALL_S / 2) as loader:
        assert [next(loader) for _ in range(3)] == [0, 1, 2]
        with suppress(Empty):  # a busy machine may have started late
            next_message_at_once(next_message)
        consumer = threading.Thread(target=lambda: list(loader))
        consumer.start()
        assert "range record 3, " in next_message()
        assert not gates[0].wait(4 * STALL_S)  # time for reports that must not come
        gates[0].set()
        assert "range record 6, " in next_message()
        gates[1].set()
        consumer.join(TELLS_S)
        with pytest.raises(Empty):
            next_message_at_once(next_message)


def next_message_at_once(next_message: Callable[[], str]) -> str:
    global TELLS_S
    patience, TELLS_S = TELLS_S, 0.01
    try:
        return next_message()
    finally:
        TELLS_S = patience


def test_r49_a_consumer_that_is_slow_itself_is_no_stall() -> None:
    with told() as next_message, TWENTY.open(stall_after=STALL_S) as loader:
        iterator = iter(loader)
        next(iterator)
        assert not threading.Event().wait(3 * STALL_S)
        list(iterator)
        with pytest.raises(Empty):
            next_message_at_once(next_message)


def test_r49_an_async_consumer_is_watched_as_well() -> None:
    gate = Gate()

    async def consume() -> list[int]:
        async with TWENTY.map(gate.check).open(stall_after=STALL_S) as loader:
            return [number async for number in loader]

    with leaves_nothing(), told() as next_message:

        def open_when_told() -> None:
            next_message()
            gate.opened.set()

        opener = threading.Thread(target=open_when_told)
        opener.start()
        assert asyncio.run(consume()) == list(range(20))
        opener.join(TELLS_S)


def test_r49_a_store_that_does_not_answer_while_files_are_looked_for_is_told(http_objects: HttpObjects) -> None:
    url = http_objects.put("/a.txt", b"one\n")
    http_objects.faults.append(HttpFault(hang=True))
    options = {"read_timeout": 1.0, "connect_timeout": 1.0}
    dataset = asd.Dataset.from_text(url, storage_options=options)
    with told() as next_message, dataset.open(stall_after=STALL_S) as loader:
        lines = list(loader)
        message = next_message()
    assert lines == ["one"]
    assert "storage/http.py" in message


def test_r49_nobody_watches_when_it_is_not_wanted_and_nobody_goes_on_watching() -> None:
    def watchers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "aiostream-watchdog"]

    with TWENTY.open(stall_after=None):
        assert watchers() == []
    with TWENTY.repeat().open() as loader:  # all rows of a short dataset can be ready, and nothing is left to watch
        assert watchers() == ["aiostream-watchdog"]
        loader.close()
        assert watchers() == []


@pytest.mark.parametrize("wrong", [0, -1.0, math.inf, math.nan, True, "120"])
def test_r49_stall_after_is_a_number_of_seconds(wrong: Any) -> None:
    with pytest.raises(PlanError, match="stall_after must be a positive number of seconds or None"):
        TWENTY.open(stall_after=wrong)


# -- on demand


def test_dump_tells_from_any_thread_what_a_loader_does_that_waits_in_another() -> None:
    gate, begun = Gate(), threading.Event()

    def check(number: int) -> int:
        if number == 7:
            begun.set()
        return gate.check(number)

    with TWENTY.map(check).open() as loader:
        consumer = threading.Thread(target=lambda: list(loader))
        consumer.start()
        assert begun.wait(TELLS_S)
        file = io.StringIO()
        text = loader.dump(file)
        gate.opened.set()
        consumer.join(TELLS_S)
    assert file.getvalue() == text + "\n"
    assert "range record 7, " in text


def test_dump_of_a_loader_at_rest_and_of_one_that_was_closed() -> None:
    with TWENTY.map(abs).batch(2).open() as loader:
        next(iter(loader))
        assert loader.dump().startswith("the consumer does not wait; ")
    assert "the event loop has ended" in loader.dump()


def test_dump_takes_no_longer_where_the_loop_is_blocked() -> None:
    gate, begun = Gate(), threading.Event()

    async def block(number: int) -> int:
        begun.set()
        return gate.check(7)

    with TWENTY.map(block).open() as loader:
        assert begun.wait(TELLS_S)
        started = perf_counter()
        text = loader.dump()
        assert perf_counter() - started < 2
        gate.opened.set()
    assert "the event loop has not answered within 0.25 s: something blocks its thread, aiostream-engine" in text


# -- which stage is stuck


def stage(name: str, **state: Any) -> StageState:
    return StageState(name=name, **state)


@pytest.mark.parametrize(
    ("stages", "stuck"),
    [
        ([], None),
        ([stage("source"), stage("map")], None),
        ([stage("source", wanted_s=1.0), stage("map", wanted_s=1.0, input_s=1.0)], "source"),
        ([stage("source", wanted_s=1.0), stage("map", wanted_s=1.0, input_s=1.0, under_way=1)], "map"),
        ([stage("source", room_s=1.0), stage("map", wanted_s=1.0)], "map"),
        ([stage("a", room_s=1.0), stage("b", wanted_s=1.0), stage("zip", wanted_s=1.0, input_s=1.0)], "b"),
        ([stage("inner", wanted_s=1.0), stage("repeat", wanted_s=1.0, opens_inputs=True)], "inner"),
        ([stage("inner", room_s=1.0), stage("cache", wanted_s=1.0, opens_inputs=True)], "cache"),
        ([stage("ended"), stage("map", wanted_s=1.0, input_s=1.0)], "map"),
    ],
)
def test_the_stuck_stage_is_the_first_from_the_consumer_that_does_not_pass_the_wait_on(
    stages: list[StageState], stuck: str | None
) -> None:
    found = find_stuck(stages)
    assert (None if found is None else found.name) == stuck


# -- every default time-out is finite

MAY_BE_NONE = {
    # A user's function may take any time: what waits for it is watched.
    *(
        "dataset.dataset:map(timeout)",
        "dataset.column_operators:with_column(timeout)",
        "plan.columns:__init__(timeout_s)",
        "dataset.dataset:filter(timeout)",
        "_engine.calls.paced_hops:__init__(timeout_s)",
    ),
    *("dataset.dataset:open(stage_timeout)", "_engine.run_options:__init__(stage_timeout_s)"),
    *(f"plan.operators:{name}(timeout_s)" for name in ("__init__", "_replace")),
    "executors.thread:__init__(limit_s)",
    # The consumer waits until a loader is open, and is watched like one that waits for an element.
    "_engine.flow.one_time_event:wait(timeout_s)",
    # Stands for a finite number that it is told later.
    "_engine.processes.process_handle:ask(timeout_s)",
    # Until closed, which the end of the run does.
    "device.stage:put(timeout_s)",
    "_engine.stages.to_device.ring_changes:until(look_again_s)",
    # What is None here is no wait of ours: when somebody waits, what was measured, and whether anybody watches.
    "metrics.window:__init__(machine_cpu_s)",
    *(f"metrics.stuck:__init__({name})" for name in ("wanted_s", "input_s", "room_s")),
    "_engine.run_options:__init__(stall_after_s)",
    # Numbers per second, what a store asks for, and what is not known yet.
    *(f"storage.caps:__init__({name})" for name in ("requests_per_s", "nbytes_per_s")),
    "storage.lanes:refused(retry_after_s)",
    "storage.hedging:__init__(late_s)",
    # google-auth asks for its own default so; the call ends with the deadline of the read.
    "storage.token_request:__call__(timeout)",
    "metrics.device_copies:__init__(copy_s)",
}


def is_bounded(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def is_seconds(name: str) -> bool:
    return name.endswith(("_S", "_s")) or name in ("timeout", "stall_after", "stage_timeout")


def parts_of_the_package() -> Iterator[tuple[str, Any]]:
    """Yield name and value of everything that a module of the package defines."""
    for found in pkgutil.walk_packages(aiostream_data.__path__, "aiostream_data."):
        if found.name.startswith(("aiostream_data._native", "aiostream_data.testing", "aiostream_data.device.cuda")):
            continue
        if found.name in ("aiostream_data.integrations.torch", "aiostream_data.integrations.jax"):
            continue  # which import what need not be installed
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if getattr(value, "__module__", found.name) == found.name:
                yield f"{found.name}:{name}", value


def defaults() -> Iterator[tuple[str, Any]]:
    """Yield every default that is a number of seconds: constants, and defaults of functions and methods."""
    for name, value in parts_of_the_package():
        if is_seconds(name) and isinstance(value, (int, float, type(None))):
            yield name, value
        callables = [("", value), *vars(value).items()] if inspect.isclass(value) else [("", value)]
        module = name.partition(":")[0]
        for method, function in callables:
            if not inspect.isfunction(function) or not function.__module__.endswith(module):
                continue  # also what wraps a method of a base class, and is looked at there
            label = f"{module}:{method or function.__name__}"
            for parameter in inspect.signature(function).parameters.values():
                if is_seconds(parameter.name) and parameter.default is not inspect.Parameter.empty:
                    yield f"{label}({parameter.name})", parameter.default


def test_r49_every_default_number_of_seconds_is_finite() -> None:
    found = dict(defaults())
    names = {name.rpartition(".")[2] for name in found}
    assert {"event_loop:CLOSE_S", "dataset:open(stall_after)", "retry:__init__(total_s)"} <= names
    assert len(found) > 25
    endless = {name.removeprefix("aiostream_data.") for name, value in found.items() if not is_bounded(value)}
    assert endless <= MAY_BE_NONE


@pytest.mark.parametrize("options", [{}, {"anon": True}])
def test_r49_every_store_gives_up_on_silence_by_default(options: dict[str, Any]) -> None:
    async def timeouts() -> list[float | None]:
        async with http.open_session(options) as session:
            return [session.timeout.sock_connect, session.timeout.sock_read]

    found: list[Any] = asyncio.run(timeouts())
    made = gcs.make_file_system({"token": "anon", **options, "endpoint_url": "http://127.0.0.1:1"})
    timeout = made.session_kwargs["timeout"]
    found += [timeout.sock_connect, timeout.sock_read]
    config = s3.make_file_system({**options}).config_kwargs
    found += [config["connect_timeout"], config["read_timeout"]]
    assert all(map(is_bounded, found))


def test_r49_retries_end() -> None:
    from aiostream_data.storage.retry import RetryPolicy

    assert is_dataclass(RetryPolicy)
    limits = {part.name: part.default for part in fields(RetryPolicy) if part.default is not MISSING}
    assert all(map(is_bounded, limits.values()))
    policy = RetryPolicy()
    assert policy.pause_s(policy.attempts, 0.0, 0.5, reached=True) is None
    assert policy.pause_s(1, policy.total_s, 0.5, reached=True) is None
