# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Send GET requests and receive their responses on threads without the GIL. The C code is in ``exchange.h``.

Without this kernel, the event loop sends the requests (``wire/loop_sender.py``), and the strict parser parses all heads.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.errno cimport errno
from libc.string cimport memchr

cdef extern from "exchange.h":
    enum:
        MOST_CONNECTIONS

    ctypedef struct Request:
        Request *next
        int number, problem, connection
        char *head
        size_t filled, head_nbytes
        double sent_s, first_s, heard_s

    ctypedef struct Exchange:
        pass

    Exchange *exchange_new(int workers, double first_byte_s, double idle_s, double total_s)
    void exchange_free(Exchange *all)
    void exchange_run(Exchange *all, int worker) nogil
    void exchange_stop(Exchange *all)
    int exchange_done_file(const Exchange *all)
    int exchange_open_queue(Exchange *all)
    void exchange_close_queue(Exchange *all, int queue)
    int exchange_put(
        Exchange *all, int queue, const char *text, size_t text_nbytes, char *into, size_t nbytes
    )
    int exchange_waiting(Exchange *all, int queue)
    void exchange_retire(Exchange *all, int queue, int count)
    int exchange_add(Exchange *all, int queue, int file)
    int exchange_cancel(Exchange *all, int number) nogil
    Request *exchange_take(Exchange *all, int *left, int *is_usable, int *left_count)
    void request_free(Request *request)
    long long head_length(const char *head, size_t nbytes, int *closes)


cdef enum:
    MOST_NAME_NBYTES = 128


cdef class _Lent:
    """A request and the buffer of its body, which must exist until the request has ended."""

    cdef bytes text
    cdef Py_buffer into

    def __cinit__(self, bytes text, into):
        PyObject_GetBuffer(into, &self.into, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.text = text

    def __dealloc__(self):
        PyBuffer_Release(&self.into)


cdef class NativeExchange:
    """Sender of requests; see :class:`.wire.thread_exchange.ThreadExchange`."""

    cdef Exchange *_all
    cdef dict _lent

    def __cinit__(self, int workers, double first_byte_s, double idle_s, double total_s):
        self._all = exchange_new(workers, first_byte_s, idle_s, total_s)
        if self._all == NULL:
            raise OSError(errno, "cannot open pipes")
        self._lent = {}

    def __dealloc__(self):
        if self._all != NULL:
            exchange_free(self._all)

    @property
    def done_file(self):
        return exchange_done_file(self._all)

    def run(self, int worker):
        with nogil:
            exchange_run(self._all, worker)

    def stop(self):
        exchange_stop(self._all)

    def open_queue(self):
        cdef int queue = exchange_open_queue(self._all)
        if queue < 0:
            raise MemoryError
        return queue

    def close_queue(self, int queue):
        exchange_close_queue(self._all, queue)

    def put(self, int queue, bytes text, into):
        cdef _Lent lent = _Lent(text, into)
        cdef int number = exchange_put(
            self._all, queue, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), <char *>lent.into.buf, lent.into.len
        )
        if number < 0:
            raise MemoryError
        self._lent[number] = lent
        return number

    def waiting(self, int queue):
        return exchange_waiting(self._all, queue)

    def retire(self, int queue, int count):
        exchange_retire(self._all, queue, count)

    def add(self, int queue, int file):
        return exchange_add(self._all, queue, file)

    def cancel(self, int number):
        cdef int connection
        if number not in self._lent:
            return -1
        with nogil:
            connection = exchange_cancel(self._all, number)
        del self._lent[number]
        return connection

    def take(self):
        cdef int left_count = 0
        cdef int *left = <int *>PyMem_Malloc(2 * MOST_CONNECTIONS * sizeof(int))
        if left == NULL:
            raise MemoryError
        cdef Request *each = exchange_take(self._all, left, left + MOST_CONNECTIONS, &left_count)
        cdef Request *next
        ended = []
        while each != NULL:
            next = each.next
            del self._lent[each.number]
            head = None if each.head == NULL else PyBytes_FromStringAndSize(each.head, each.head_nbytes)
            first_byte_s = each.first_s - each.sent_s if each.first_s > 0 else 0.0
            body_s = each.heard_s - each.first_s
            ended.append((each.number, each.connection, each.problem, head, first_byte_s, body_s, each.filled))
            request_free(each)
            each = next
        gone = [(left[place], left[MOST_CONNECTIONS + place] != 0) for place in range(left_count)]
        PyMem_Free(left)
        return ended, gone


def ordinary_head(bytes head):
    """Return the status, headers and body length of a response head, or None if the strict parser must judge it.

    The headers are a dict with lower-case names.
    """
    cdef const char *text = PyBytes_AS_STRING(head)
    cdef const char *end = text + PyBytes_GET_SIZE(head) - 2
    cdef const char *at
    cdef const char *value
    cdef char name[MOST_NAME_NBYTES]
    cdef Py_ssize_t nbytes
    cdef int fields = 0, closes = 0
    cdef long long length = head_length(text, PyBytes_GET_SIZE(head), &closes)
    if length < 0 or closes:
        return None
    headers = {}
    at = <const char *>memchr(text, b"\n", end - text) + 1
    while at < end:  # every line is valid
        nbytes = 0
        while at[0] != b":":
            if nbytes == MOST_NAME_NBYTES:
                return None
            name[nbytes] = at[0] + 32 if b"A" <= at[0] <= b"Z" else at[0]
            nbytes += 1
            at += 1
        at += 1
        while at[0] == b" " or at[0] == b"\t":
            at += 1
        value = at
        at = <const char *>memchr(at, b"\r", end - at)
        if at > value and ((at - 1)[0] == b" " or (at - 1)[0] == b"\t"):
            return None
        headers[PyUnicode_DecodeLatin1(name, nbytes, NULL)] = PyUnicode_DecodeLatin1(value, at - value, NULL)
        fields += 1
        at += 2
    return (200 if text[11] == b"0" else 206, headers, length) if len(headers) == fields else None
