# cython: boundscheck=False, wraparound=False
"""Count bytes, and end charges where no signal handler can interrupt; ``ledger_py`` is the pure-Python twin.

Python calls signal handlers between bytecodes, those of ``__del__`` included, and discards what ``__del__`` raises. So
an interrupt (Ctrl-C) was lost when the main thread deleted a chunk at this moment. The functions here have no bytecode.
"""

from threading import main_thread

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF

cdef extern from "Python.h":
    int Py_AddPendingCall(int (*function)(void *) noexcept, void *argument) noexcept
    void PyErr_SetObject(object kind, object value) noexcept
    unsigned long PyThread_get_thread_ident() noexcept

cdef int ATTEMPTS = 8


cdef int _raise_in_the_main_thread(void *raised) noexcept:
    error = <object>raised
    Py_DECREF(error)  # Py_INCREF of finish()
    PyErr_SetObject(type(error), error)
    return -1


def finish(function, *_):
    """Call a function again until no signal handler interrupts it; raise the handler's exception afterwards."""
    cdef int attempt
    first = None
    for attempt in range(ATTEMPTS):
        try:
            function()
            break
        except BaseException as error:
            if PyThread_get_thread_ident() != main_thread().ident:
                raise
            if first is None:
                first = error
    if first is not None:
        Py_INCREF(first)
        if Py_AddPendingCall(_raise_in_the_main_thread, <void *>first) != 0:  # 32 wait already
            Py_DECREF(first)
            raise first


@cython.auto_pickle(False)
@cython.final
@cython.no_gc
cdef class Category:
    cdef long long used, peak
    cdef bint flows


@cython.auto_pickle(False)
cdef class Ledger:
    """Bytes in use by memory category, and records that pass alone."""

    cdef readonly long long used, peak, flowing
    cdef readonly Py_ssize_t gathering, passing
    cdef public bint is_awaited
    cdef dict _categories

    def __cinit__(self, *_, **__):
        self._categories = {}

    def __init__(self, flowing=()):
        cdef Category category
        for name in flowing:
            category = self._category(name)
            category.flows = True

    def look_again(self):
        """Do nothing. Subclasses override this method to notify waiters."""

    @property
    def holders(self):
        """The current and the peak number of bytes for each memory category that has ever been used."""
        cdef Category category
        return {name: (category.used, category.peak) for name, category in self._categories.items() if category.peak}

    def held_by(self, str holder not None):
        """Return the number of bytes currently counted in a memory category."""
        found = self._categories.get(holder)
        return 0 if found is None else (<Category>found).used

    cdef Category _category(self, str name):
        found = self._categories.get(name)
        if found is None:
            found = self._categories.setdefault(name, Category.__new__(Category))
        return <Category>found

    cdef int _count(self, Category category, long long change) except -1:
        with cython.critical_section(self):
            self.used += change
            if self.used > self.peak:
                self.peak = self.used
            category.used += change
            if category.used > category.peak:
                category.peak = category.used
            if category.flows:
                self.flowing += change
        if change < 0 and self.is_awaited:
            finish(self.look_again)
        return 0

    cdef int _count_alone(self, int gathering, int held) except -1:
        with cython.critical_section(self):
            self.gathering += gathering
            self.passing += held
        if self.is_awaited and (gathering < 0 or held < 0):
            finish(self.look_again)
        return 0


@cython.auto_pickle(False)
@cython.final
@cython.no_gc_clear  # an object needs its ledger as long as it exists
cdef class Charge:
    """Bytes counted in a ledger until this object is deleted or :meth:`end` is called."""

    cdef readonly Ledger ledger
    cdef Category _category
    cdef readonly long long nbytes

    def __cinit__(self, Ledger ledger not None, long long nbytes, str holder not None):
        self._category = ledger._category(holder)
        self.ledger = ledger
        self.resize(nbytes)

    cpdef resize(self, long long nbytes):
        """Change the number of bytes counted by this charge."""
        cdef long long change
        with cython.critical_section(self):
            change = nbytes - self.nbytes
            self.nbytes = nbytes
        if change:
            self.ledger._count(self._category, change)

    def end(self):
        """Release the bytes. The method is idempotent and can be called from any thread."""
        self.resize(0)

    def __del__(self):
        if self.nbytes:
            self.ledger._count(self._category, -self.nbytes)


@cython.auto_pickle(False)
@cython.final
@cython.no_gc_clear
cdef class Alone:
    """Permit to collect one record that is larger than its share of the memory limit.

    The permit ends when the last chunk that uses the permit as its lease is deleted.
    """

    cdef readonly Ledger ledger
    cdef bint _is_gathered

    def __cinit__(self, Ledger ledger not None):
        self.ledger = ledger
        ledger._count_alone(1, 1)

    def gathered(self):
        """Mark the large record as completely received. Callable from any thread."""
        cdef bint first
        with cython.critical_section(self):
            first = not self._is_gathered
            self._is_gathered = True
        if first:
            self.ledger._count_alone(-1, 0)

    def __del__(self):
        if self.ledger is not None:
            self.ledger._count_alone(-1 if not self._is_gathered else 0, -1)
