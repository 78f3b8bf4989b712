"""The processes that host parts of a loader's plan, as the process that opened the plan sees them.

How this works. Every place of ``in_subprocess()`` has processes of its own, started when it is first run and kept for
all epochs. A thread for each of them receives what it sends (:mod:`.hosted`): chunks go to the loop of the engine,
answers to whoever asked. Memory that a chunk came in is the receiver's at once; what bounds it is that the process
sends no more than a window of bytes that were not taken on here.

Only the process knows where the stream goes on behind a row. So it has to live as long as somebody may ask that: until
the engine has ended *and* the loader has let go, see :meth:`Hosting.engine_ended` and :meth:`Hosting.let_go`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from time import monotonic
from typing import Any, Final, NamedTuple

from aiostream_data._engine.adopted import Adopted, Alike
from aiostream_data._engine.announced import Announced
from aiostream_data._engine.budget import Budget
from aiostream_data._engine.context import Board, RunContext
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.errand import Errand, caches_of, file_sources, own_keys
from aiostream_data._engine.failures import as_raisable
from aiostream_data._engine.hand_over import taken
from aiostream_data._engine.hosted_counters import joined_counters
from aiostream_data._engine.origins import Origins
from aiostream_data._engine.position import State
from aiostream_data._engine.state_writer import FIRST
from aiostream_data._engine.weight_changes import WeightChanges
from aiostream_data.errors import CardinalityError, LoaderClosedError, PlanError, StageBuildError, WorkerDiedError
from aiostream_data.executors.child import Child
from aiostream_data.executors.failure import Failure
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.mixing import Mix
from aiostream_data.plan.rewrite import batches_in_parts
from aiostream_data.plan.subprocess import InSubprocess, places_of, process_nbytes
from aiostream_data.plan.worker_share import check_shared, for_worker
from aiostream_data.records import Chunk
from aiostream_data.transforms.batching import SHARED_NBYTES

ASK_S: Final = 5.0
"""Longest wait for an answer: a function that holds the GIL keeps a process from answering."""

END_S: Final = 0.5
"""Seconds that a process has to end by itself, when it is not needed any more."""

WINDOW: Final = 16
"""What is on its way to here takes at most this fraction (1/16) of the memory limit, from all processes together."""

CODES: Final = 1 << 20
"""How many codes a process has for what it mentions in states."""


def window_nbytes(memory_limit: int, processes: int) -> int:
    """Return how many bytes may be on their way from each of so many processes, for each of its runs."""
    return max(1, memory_limit // (WINDOW * processes))


class Arrived(NamedTuple):
    """A chunk of another process, over memory that is this process's now.

    Attributes:
        nbytes: What the other process counts it as.
    """

    chunk: Chunk
    nbytes: int


class RemoteRun:
    """One run of a plan in another process, read on the loop of the engine.

    Args:
        on_drained: Called on the loop when its sources have read their last row.
    """

    def __init__(self, process: HostingProcess, number: int, on_drained: Callable[[], None]) -> None:
        self._process = process
        self._number = number
        self._on_drained = on_drained
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Arrived | BaseException | int] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._rows = 0
        self._is_read = True

    async def next(self) -> Arrived | None:
        """Return the next chunk; None after the last.

        Raises:
            BaseException: What the run failed with.
            CardinalityError: Rows were lost on the way.
        """
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        found = self._arrived.popleft()
        if isinstance(found, Arrived):
            self._rows += len(found.chunk)
            return found
        self._arrived.append(found)  # asked again, it answers the same
        if isinstance(found, BaseException):
            raise as_raisable(found)
        if found != self._rows:
            raise CardinalityError(
                f"{found} rows were handed over and {self._rows} arrived; this is a bug in aiostream_data, and the "
                "epoch cannot be trusted"
            )
        return None

    @property
    def ready(self) -> bool:
        """Whether :meth:`next` would not wait."""
        return bool(self._arrived)

    def taken(self, nbytes: int) -> None:
        """Say that a chunk was handed on, so that the other process may send more."""
        self._process.tell("taken", self._number, nbytes, 1)

    def place(self, rows: int) -> dict[str, Any]:
        """Return where it goes on behind a row, as parts of a state. From any thread.

        Raises:
            WorkerDiedError: The process that knows has died.
        """
        found: dict[str, Any] = self._process.ask("place", self._number, rows)
        return found

    def forget(self, rows: int) -> None:
        """Say that nobody will ask for a place before ``rows`` any more. From any thread."""
        self._process.tell("forget", self._number, rows)

    def stop(self) -> None:
        """End it, if it has not ended. Nobody reads it any more; its places can still be asked for."""
        self._is_read = False
        self._on_drained = _nothing
        self._arrived.clear()
        self._process.tell("stop", self._number)

    def drop(self) -> None:
        """Say that nobody will ask for a place of it any more. Never waits; also called by finalizers."""
        self._process.drop(self._number)

    # -- on the thread that receives

    def hear(self, what: Arrived | BaseException | int | None) -> None:
        """Take in what has arrived: a chunk, the error it failed with, its rows at the end; None for drained."""
        with suppress(RuntimeError):  # the engine has ended, and nobody reads it
            self._loop.call_soon_threadsafe(self._hear, what)

    def _hear(self, what: Arrived | BaseException | int | None) -> None:
        if what is None:
            self._on_drained()
            return
        if self._is_read:
            self._arrived.append(what)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Question:
    """Waits for its answer."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._answer: Any = None

    def answer(self, value: Any) -> None:
        self._answer = value
        self._event.set()

    def wait(self, timeout_s: float) -> Any:
        if not self._event.wait(timeout_s):
            raise WorkerDiedError(f"the process of in_subprocess() did not answer within {timeout_s:g} s")
        if isinstance(self._answer, Failure):
            raise _as_error(self._answer)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


class HostingProcess:
    """One process that hosts a plan. Every method may be called from any thread, unless it says otherwise.

    Args:
        errand: What it is told first.
        alike: Namespaces of the place that it runs.
        budget: What chunks that arrive are charged to.

    Attributes:
        child: The process itself.
        patience_s: How long to wait for answers.
        last_stats: What it said last of what it has counted.
    """

    def __init__(self, errand: Errand, name: str, alike: Alike, budget: Budget) -> None:
        self._adopted = Adopted(alike, self.ask)
        self._budget = budget
        self._runs: dict[int, RemoteRun] = {}
        self._questions: dict[int, _Question] = {}
        self._numbers = count()
        self._lock = threading.Lock()
        self._later: deque[tuple[Any, ...]] = deque()
        self._over: str | None = None
        self._closing = False
        self.patience_s = ASK_S
        self.last_stats: Mapping[str, Any] = {"stages": [], "storage": [], "memory": (0, 0, 0.0), "holders": {}}
        self.child = Child("aiostream_data._engine.hosted:serve", name, 2 * errand.window_nbytes)
        self._send_errand(errand)
        self._thread = threading.Thread(target=self._receive, name=f"{name}-link", daemon=True)
        self._thread.start()

    def _send_errand(self, errand: Errand) -> None:
        try:
            self.child.exchange.send(errand)
        except EOFError:
            raise self.child.obituary() from None
        except Exception as error:
            self.child.kill()
            self.child.bury()
            raise StageBuildError(
                f"the chain cannot be sent to the process of in_subprocess() ({error}): install "
                "aiostream-data[process] for lambdas and local functions, or keep what does not pickle out of it"
            ) from error

    def begin(self, epoch: int, state: State, on_drained: Callable[[], None]) -> RemoteRun:
        """Begin a run. Call on the loop that reads it."""
        number = next(self._numbers)
        run = RemoteRun(self, number, on_drained)
        with self._lock:
            self._check_not_over()
            self._runs[number] = run
        self.tell("begin", number, epoch, state)
        return run

    def stats(self) -> Mapping[str, Any]:
        """Return what it has counted; what it said last where it does not answer."""
        with suppress(WorkerDiedError):
            self.last_stats = self.ask("stats", timeout_s=END_S)
        return self.last_stats

    def ask(self, question: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a question; see :class:`.hosted.HostedEngine`.

        Raises:
            WorkerDiedError: There is none.
        """
        number, asked = next(self._numbers), _Question()
        with self._lock:
            self._check_not_over()
            self._questions[number] = asked
        try:
            self.tell("ask", number, question, *args)
            return asked.wait(self.patience_s if timeout_s is None else timeout_s)
        finally:
            with self._lock:
                self._questions.pop(number, None)

    def _check_not_over(self) -> None:
        if self._over is not None:
            raise WorkerDiedError(f"the process of in_subprocess() has ended: {self._over}")

    def tell(self, *message: Any) -> None:
        """Send a message; nothing where the process has ended, which its thread tells whoever waits."""
        with suppress(EOFError):
            while self._later:
                with suppress(IndexError):  # another thread was quicker
                    self.child.exchange.send(self._later.popleft())
            self.child.exchange.send(message)

    def drop(self, number: int) -> None:
        """Forget a run; the process hears of it with the next message. Never waits."""
        self._runs.pop(number, None)
        self._later.append(("drop", number))

    def end_soon(self) -> None:
        """Ask the process to end."""
        self._closing = True
        self.child.exchange.close()

    def close(self, grace_s: float = END_S) -> None:
        """End the process, and wait for that, a bounded time. Idempotent.

        Args:
            grace_s: How long it may still take to end by itself.
        """
        self.end_soon()
        self.child.bury(grace_s)
        self._thread.join(END_S)

    # -- on the thread that receives

    def _receive(self) -> None:
        try:
            while True:
                received = self.child.exchange.receive()
                received.lease.release()
                kind, *args = received.message
                if kind == "chunk":
                    args.append(received.written)  # what was put together there on the way
                del received
                self._hear(kind, *args)
                del args
        except EOFError:
            self._end(WorkerDiedError("the process of in_subprocess() was ended") if self._closing else self._died())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._end(error)

    def _died(self) -> BaseException:
        return self.child.obituary()

    def _hear(self, kind: str, *args: Any) -> None:
        if kind == "answer":
            with self._lock:
                asked = self._questions.get(args[0])
            if asked is not None:
                asked.answer(args[1])
            return
        if kind == "refused":
            raise _as_error(args[0])
        number, *rest = args
        run = self._runs.get(number)
        if kind == "chunk":
            self._adopted.learn(rest[1])
        if run is None:
            return  # it was dropped meanwhile
        if kind == "chunk":
            sent, _, written = rest
            chunk = taken(self._adopted.renamed(sent), written).with_lease(self._budget.charge(sent.nbytes))
            run.hear(Arrived(chunk, sent.nbytes))
        elif kind == "failed":
            run.hear(_as_error(rest[0]))
        else:
            run.hear(None if kind == "drained" else rest[0])

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._over = str(error)
            runs, questions = list(self._runs.values()), list(self._questions.values())
        for run in runs:
            run.hear(error)
        for asked in questions:
            asked.answer(WorkerDiedError(f"the process of in_subprocess() has ended: {error}"))


class Hosting:
    """The processes of all places of one plan that has any.

    Args:
        plan: As it is run.
        options: Of the engine that runs it.
        has_closed: Called when there is no process any more, and will be none.

    Raises:
        PlanError: Several workers would each count and log the same records.
    """

    def __init__(
        self, plan: Node, options: EngineOptions, origins: Origins, budget: Budget, has_closed: Callable[[], None]
    ) -> None:
        self._options = options
        self._origins = origins
        self._budget = budget
        self._has_closed = has_closed
        self._nbytes = process_nbytes(plan, options.memory_limit)
        self._places: dict[InSubprocess, list[HostingProcess]] = {node: [] for node in places_of(plan)}
        for node in self._places:
            check_shared(node)
        self._starting = threading.Lock()
        self._lock = threading.RLock()  # a garbage collection inside the locked region may let go
        self._engine_ended = self._let_go = False
        self.closed = Announced()
        self._children: list[Child] = []  # a list of its own, for the finalizer, which must not refer to this
        weakref.finalize(self, _end_in_background, self._children, os.getpid()).atexit = False

    @property
    def processes(self) -> list[HostingProcess]:
        """All that were started. From any thread."""
        with self._lock:
            return [process for of_place in self._places.values() for process in of_place]

    def processes_of(self, node: InSubprocess, context: RunContext, root_seed: int) -> list[HostingProcess]:
        """Return the processes of a place, started when first asked for. Not on the loop: it takes a moment."""
        with self._starting:
            if not self._places[node]:
                self._start(node, context, root_seed)
            return list(self._places[node])

    def _start(self, node: InSubprocess, context: RunContext, root_seed: int) -> None:
        alike = Alike(self._origins)
        places = list(self._places)
        before = sum(other.workers for other in places[: places.index(node)])
        with ExitStack() as started:
            processes = []
            for index in range(node.workers):
                errand = self._errand(node, index, before + index, context, root_seed)
                processes.append(HostingProcess(errand, f"asd-subprocess-{before + index}", alike, self._budget))
                started.callback(processes[-1].close)
            with self._lock:
                if self.closed.happened:
                    raise LoaderClosedError("the loader was closed while the processes of in_subprocess() started")
                self._places[node] = processes
                self._children += [process.child for process in processes]
                started.pop_all()

    def _errand(self, node: InSubprocess, index: int, number: int, context: RunContext, root_seed: int) -> Errand:
        options, services = self._options, context.services
        resolved = tuple(services.resolved.get(source) for source in file_sources(node.input))
        shared = tuple(cache.token in services.shared_caches for cache in caches_of(node.input))
        return Errand(
            plan=batches_in_parts(for_worker(node.input, index, node.workers), SHARED_NBYTES),
            keys=own_keys(node.input, context.keys),
            resolved=resolved,
            shared_caches=shared,
            memory_limit=self._nbytes,
            window_nbytes=window_nbytes(options.memory_limit, sum(place.workers for place in self._places)),
            first_code=FIRST + CODES * (number + 1),
            root_seed=root_seed,
            book=options.book,
            weights=options.weights,
            caches=options.caches,
            dead_letters=options.dead_letters,
            full_tracebacks=options.full_tracebacks,
        )

    # -- what they say, and are told

    def runs(self, mixture: Mix) -> bool:
        """Tell whether a mixture is part of what runs in processes."""
        return any(mixture in walk(node.input) for node in self._places)

    def set_weights(self, mixture: Mix, key: int, weights: Any, from_row: int | None) -> int:
        """Change the weights of a mixture that runs in a process.

        Raises:
            PlanError: It runs in several, or in one that has not begun.
        """
        node, processes = next(item for item in self._places.items() if mixture in walk(item[0].input))
        if node.workers > 1:
            raise PlanError("weights cannot be changed of a mixture that runs in several workers; use workers=1")
        if not processes:
            raise PlanError("the process of the mixture has not begun; ask again after the first element")
        row: int = processes[0].ask("set_weights", key, weights, from_row)
        return row

    def tell_weights(self, weights: WeightChanges, keys: Mapping[Node, int]) -> None:
        """Tell of all changes of weights since the processes began."""
        for node, processes in list(self._places.items()):
            mixtures = mixtures_of(node, keys)
            if processes and mixtures:
                weights.known_elsewhere(mixtures, processes[0].ask("weights"))

    def show(self, board: Board, numbers: Mapping[Node, int]) -> None:
        """Show the stages that run in processes, as they are now, or were when a process last answered in time."""
        for node, processes in list(self._places.items()):
            for key, counters in joined_counters([process.stats()["stages"] for process in processes]):
                board.put(f"{numbers[node]}/{key}", counters)

    @property
    def last_stats(self) -> list[Mapping[str, Any]]:
        """What each process said last of its stores and its memory."""
        return [process.last_stats for process in self.processes]

    def hurry(self) -> None:
        """Wait for answers no longer than an end may take."""
        for process in self.processes:
            process.patience_s = END_S

    # -- their end

    def engine_ended(self) -> None:
        """Hear that nobody runs anything any more. On the engine's thread."""
        with self._lock:
            self._engine_ended = True
            close = self._let_go or not self.processes
        if close:
            self._close()

    def let_go(self) -> None:
        """Hear that nobody will ask anything any more. Never waits; also called by finalizers."""
        with self._lock:
            close = self._engine_ended and not self._let_go and not self.closed.happened
            self._let_go = True
        if close:
            threading.Thread(target=self._close, name="asd-end-processes", daemon=True).start()

    def wait_closed(self, timeout_s: float) -> None:
        """Wait until no process is left, if nobody needs them any more."""
        if self._engine_ended and self._let_go:
            self.closed.wait(timeout_s)

    def _close(self) -> None:
        processes = self.processes
        for process in processes:
            process.end_soon()
        deadline = monotonic() + END_S  # of all of them, as they end at the same time
        for process in processes:
            process.close(max(0.0, deadline - monotonic()))
        self._children.clear()
        self._has_closed()
        self.closed.announce()


def _end_in_background(children: list[Child], pid: int) -> None:
    """End processes that nobody has let go of, and nobody can any more; in the process that started them."""
    if children and os.getpid() == pid:
        threading.Thread(target=_bury, args=(children,), name="asd-end-processes", daemon=True).start()


def _bury(children: list[Child]) -> None:
    for child in children:
        child.exchange.close()
    deadline = monotonic() + END_S
    for child in children:
        child.bury(max(0.0, deadline - monotonic()))


def mixtures_of(node: InSubprocess, keys: Mapping[Node, int]) -> frozenset[int]:
    """Return the keys of the mixtures that a place runs in processes."""
    return frozenset(keys[lower] for lower in walk(node.input) if isinstance(lower, Mix))


def _nothing() -> None:
    """Do nothing."""


def _as_error(failure: Failure) -> BaseException:
    """Return the error of another process: the very one where it could be sent, with the traceback as a note."""
    error = failure.as_error()
    original = error.__cause__
    if original is None:
        return error
    for note in getattr(error, "__notes__", ()):
        if note not in getattr(original, "__notes__", ()):
            original.add_note(note)
    return original
