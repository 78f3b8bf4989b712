"""Move a ``numpy.random.Philox`` generator to another position; ``philox_py`` is the pure-Python twin.

Setting ``Philox.state`` takes microseconds, because NumPy reads a dict. This kernel writes the C structure instead. It
first checks that the structure lies where NumPy has had it since version 1.17, and refuses any other.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

import sys

cdef extern from *:
    """
    #include <stdint.h>
    typedef struct { void *state; } PhiloxBits; /* the first field of NumPy's bitgen_t */
    typedef struct {
        uint64_t *counter, *key;
        int buffer_place;
        uint64_t buffer[4];
        int has_half;
        uint32_t half;
    } PhiloxState;
    """
    ctypedef struct PhiloxBits:
        void *state

    ctypedef struct PhiloxState:
        uint64_t *counter
        uint64_t *key
        int buffer_place
        uint64_t buffer[4]
        int has_half
        uint32_t half

    size_t STATE_NBYTES "sizeof(PhiloxState)"


cdef class PhiloxSeeker:
    """Moves one ``numpy.random.Philox`` generator to the random numbers of any row. Not thread-safe.

    Args:
        philox: The generator; a new one.

    Raises:
        ValueError: NumPy stores the state of the generator in another way.
    """

    cdef object philox
    cdef PhiloxState *state
    cdef uint64_t key[2]

    def __init__(self, philox):
        cdef uintptr_t first = <uintptr_t>id(philox)
        cdef uintptr_t stop = first + <uintptr_t>sys.getsizeof(philox)
        capsule = philox.capsule
        if not PyCapsule_IsValid(capsule, "BitGenerator"):
            raise ValueError("NumPy has another kind of generator")
        cdef PhiloxState *state = <PhiloxState *>(<PhiloxBits *>PyCapsule_GetPointer(capsule, "BitGenerator")).state
        if not _is_inside(<uintptr_t>state, STATE_NBYTES, first, stop):
            raise ValueError("NumPy stores the state elsewhere")
        if not _is_inside(<uintptr_t>state.counter, 32, first, stop) or not _is_inside(
            <uintptr_t>state.key, 16, first, stop
        ):
            raise ValueError("NumPy stores the counter and the key elsewhere")
        self.philox, self.state = philox, state
        self.key[0], self.key[1] = state.key[0], state.key[1]
        if not self._agrees():
            raise ValueError("NumPy stores the state in another order")

    def _agrees(self):
        """Return True if NumPy reports the values that this class reads."""
        told = self.philox.state
        state = told["state"]
        return (
            [self.state.counter[place] for place in range(4)] == state["counter"].tolist()
            and [self.state.key[place] for place in range(2)] == state["key"].tolist()
            and [self.state.buffer[place] for place in range(4)] == told["buffer"].tolist()
            and (self.state.buffer_place, self.state.has_half, self.state.half)
            == (told["buffer_pos"], told["has_uint32"], told["uinteger"])
        )

    def seek(self, uint64_t split, uint64_t ordinal):
        """Move the generator to the beginning of the stream of a row."""
        cdef PhiloxState *state = self.state
        cdef int place
        state.key[0], state.key[1] = self.key[0], self.key[1]  # the user can have changed the key
        state.counter[0] = state.counter[1] = 0
        state.counter[2] = split
        state.counter[3] = ordinal
        state.buffer_place = 4
        state.has_half = 0
        state.half = 0
        for place in range(4):
            state.buffer[place] = 0


cdef bint _is_inside(uintptr_t at, size_t nbytes, uintptr_t first, uintptr_t stop):
    return at % 8 == 0 and at >= first and at + nbytes <= stop
