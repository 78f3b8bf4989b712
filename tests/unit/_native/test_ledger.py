"""Counting bytes, and releases that an interrupt cannot lose: the kernels and their twins."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading
from collections import deque
from itertools import chain
from typing import Any

import pytest

from aiostream_data._native import ledger_py

ledger = pytest.importorskip("aiostream_data._native.ledger")
both = pytest.mark.parametrize("kernels", [ledger, ledger_py], ids=["native", "python"])

RAISE = ctypes.PyDLL(None)["raise"]
"""The C function. Unlike ``signal.raise_signal``, its caller decides when Python looks at signals."""


@both
def test_bytes_are_counted_by_category_with_their_peaks(kernels: Any) -> None:
    counts = kernels.Ledger(("rows", "results"))
    rows, cached = kernels.Charge(counts, 30, "rows"), kernels.Charge(counts, 50, "cache")
    rows.resize(10)
    assert (counts.used, counts.peak, counts.flowing) == (60, 80, 10)
    cached.end()
    cached.end()
    assert (rows.nbytes, cached.nbytes) == (10, 0)
    assert counts.holders == {"rows": (10, 30), "cache": (0, 50)}
    assert [counts.held_by(name) for name in ("rows", "cache", "results", "other")] == [10, 0, 0, 0]
    del rows
    assert (counts.used, counts.peak, counts.flowing) == (0, 80, 0)


@both
def test_a_permit_counts_a_record_until_it_is_complete_and_deleted(kernels: Any) -> None:
    counts = kernels.Ledger()
    permit = kernels.Alone(counts)
    assert (counts.gathering, counts.passing) == (1, 1)
    permit.gathered()
    permit.gathered()
    assert (counts.gathering, counts.passing) == (0, 1)
    del permit
    other = kernels.Alone(counts)
    del other
    assert (counts.gathering, counts.passing) == (0, 0)


@both
def test_a_release_calls_the_ledger_only_while_it_is_awaited(kernels: Any) -> None:
    counts, calls = _noting(kernels)
    kernels.Charge(counts, 1, "rows").end()
    assert not calls
    counts.is_awaited = True
    charge, permit = kernels.Charge(counts, 5, "rows"), kernels.Alone(counts)
    charge.resize(6)
    assert not calls
    charge.resize(5)
    del charge
    permit.gathered()
    del permit
    assert calls == [5, 0, 0, 0]


@both
def test_a_ledger_lives_as_long_as_its_charges_and_cycles_are_collected(kernels: Any) -> None:
    counts, calls = _noting(kernels)
    counts.is_awaited = True
    cycle: list[Any] = [kernels.Charge(counts, 5, "rows")]
    cycle.append(cycle)
    del counts
    del cycle
    gc.collect()
    assert calls == [0]


@both
def test_threads_lose_no_byte(kernels: Any) -> None:
    counts = kernels.Ledger()

    def work() -> None:
        for number in range(2_000):
            kernels.Charge(counts, number, "rows").resize(number // 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts.used, counts.held_by("rows")) == (0, 0)
    assert 0 < counts.peak < 4 * 2_000


@pytest.mark.parametrize(("kind", "arguments"), [(ledger.Charge, (None, 1, "rows")), (ledger.Alone, (None,))])
def test_charges_and_permits_need_a_ledger(kind: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        kind(*arguments)
    with pytest.raises(TypeError):
        kind.__new__(kind)


def test_sizes_that_no_memory_has_are_refused() -> None:
    counts = ledger.Ledger()
    with pytest.raises(OverflowError):
        ledger.Charge(counts, 1 << 63, "rows")
    assert counts.used == 0


def test_an_interrupt_while_a_charge_is_deleted_is_raised_afterwards() -> None:
    counts = ledger.Ledger()
    charges = [ledger.Charge(counts, 5, "rows")]
    with pytest.raises(KeyboardInterrupt):
        _interrupt_and_delete(charges)
    assert counts.used == 0


def test_an_interrupt_while_a_waiter_is_notified_is_raised_after_the_notification() -> None:
    counts, calls = _noting(ledger)
    counts.is_awaited = True
    charges = [ledger.Charge(counts, 5, "rows")]
    with pytest.raises(KeyboardInterrupt):
        _interrupt_and_delete(charges)
    assert calls == [0]


def test_a_call_that_a_signal_handler_ends_is_made_again() -> None:
    calls: list[int] = []

    def told() -> None:
        calls.append(len(calls))
        if len(calls) <= 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ledger.finish(told)
    assert calls == [0, 1, 2]


def test_an_error_of_another_thread_passes_on() -> None:
    raised: list[BaseException] = []

    def fails() -> None:
        raise ValueError("no loop")

    def work() -> None:
        try:
            ledger.finish(fails)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(raised) == 1


def _noting(kernels: Any) -> tuple[Any, list[int]]:
    """Return a ledger, and the list of the bytes in use at each of its calls."""
    calls: list[int] = []

    class Noting(kernels.Ledger):  # type: ignore[misc]
        def look_again(self) -> None:
            calls.append(self.used)

    return Noting(), calls


def _interrupt_and_delete(objects: list[Any]) -> None:
    """Interrupt this thread, and delete the objects before Python looks at signals again."""
    deque(chain(map(RAISE, [signal.SIGINT]), map(objects.pop, range(-1, -len(objects) - 1, -1))), maxlen=0)
