# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Exchange arrays by the Arrow C data interface, without copies; ``arrow_c_py`` is the pure-Python twin.

An exported ``ArrowArray`` owns one reference to the buffers of its field (``private_data``) and memory from ``malloc``.
Its release callback drops both. Other libraries call release callbacks from any thread, with or without the GIL. While
the interpreter ends, no thread can take the GIL; the callback then leaks the reference instead.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.errno cimport EINVAL, EIO, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from aiostream_data._native.arrow_nodes import (
    ArrayNode,
    NodeCount,
    SchemaNode,
    check_buffers,
    check_capsule_owner,
    check_stream_idle,
    field_texts,
)

cdef extern from "arrow_c.h":
    enum:
        ASD_ARROW_NULLABLE

    cdef struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data

    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data

    int python_is_running() noexcept nogil


# -- exported schemas: all memory is from malloc, so releasing them needs no GIL -----------------------------------


def export_schema(field):
    """Return a new ``arrow_schema`` capsule with the schema of ``field``; see the pure-Python twin."""
    cdef ArrowSchema* schema = <ArrowSchema*>_zeroed(sizeof(ArrowSchema))
    try:
        _fill_schema(schema, field)
        return PyCapsule_New(schema, "arrow_schema", _drop_schema_capsule)
    except BaseException:
        if schema.release != NULL:
            schema.release(schema)
        free(schema)
        raise


cdef int _fill_schema(ArrowSchema* schema, field) except -1:
    """Fill a zeroed schema. If this fails, the caller must call its release callback, unless that is NULL."""
    cdef Py_ssize_t count = len(field.children), i
    format, name = field_texts(field)
    schema.release = _release_schema
    schema.format = _copied(format)
    schema.name = _copied(name)
    schema.flags = ASD_ARROW_NULLABLE if field.nullable else 0
    if count:
        schema.children = <ArrowSchema**>_zeroed(count * sizeof(void*))
        schema.n_children = count
    for i in range(count):
        schema.children[i] = <ArrowSchema*>_zeroed(sizeof(ArrowSchema))
        _fill_schema(schema.children[i], field.children[i])
    if field.dictionary is not None:
        schema.dictionary = <ArrowSchema*>_zeroed(sizeof(ArrowSchema))
        _fill_schema(schema.dictionary, field.dictionary)
    return 0


cdef void _release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        _release_inner_schema(schema.children[i])
    _release_inner_schema(schema.dictionary)
    free(schema.children)
    free(<void*>schema.name)
    free(<void*>schema.format)
    schema.release = NULL


cdef void _release_inner_schema(ArrowSchema* schema) noexcept nogil:
    if schema != NULL and schema.release != NULL:  # NULL: the consumer took the child
        schema.release(schema)
    free(schema)


cdef void _drop_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


# -- exported arrays -------------------------------------------------------------------------------------------------


def export_array(field):
    """Return a new ``arrow_array`` capsule with the data of ``field``; see the pure-Python twin."""
    cdef ArrowArray* array = <ArrowArray*>_zeroed(sizeof(ArrowArray))
    try:
        _fill_array(array, field)
        return PyCapsule_New(array, "arrow_array", _drop_array_capsule)
    except BaseException:
        if array.release != NULL:
            array.release(array)
        free(array)
        raise


cdef int _fill_array(ArrowArray* array, field) except -1:
    """Fill a zeroed array. If this fails, the caller must call its release callback, unless that is NULL."""
    cdef tuple buffers = field.buffers
    cdef Py_ssize_t count = len(field.children), size = len(buffers), i
    check_buffers(field)
    array.length = field.length
    array.null_count = field.null_count
    array.release = _release_array
    Py_INCREF(buffers)
    array.private_data = <PyObject*>buffers
    if size:
        array.buffers = <const void**>_zeroed(size * sizeof(void*))
        array.n_buffers = size
    for i in range(size):
        if buffers[i] is not None:
            array.buffers[i] = _address(buffers[i])
    if count:
        array.children = <ArrowArray**>_zeroed(count * sizeof(void*))
        array.n_children = count
    for i in range(count):
        array.children[i] = <ArrowArray*>_zeroed(sizeof(ArrowArray))
        _fill_array(array.children[i], field.children[i])
    if field.dictionary is not None:
        array.dictionary = <ArrowArray*>_zeroed(sizeof(ArrowArray))
        _fill_array(array.dictionary, field.dictionary)
    return 0


cdef void _release_array(ArrowArray* array) noexcept nogil:
    if python_is_running():
        with gil:  # once for the whole tree: the callbacks of the children then take it without waiting
            _release_parts(array)
            Py_XDECREF(<PyObject*>array.private_data)
    else:
        _release_parts(array)
    array.private_data = NULL
    array.release = NULL


cdef void _release_parts(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        _release_inner_array(array.children[i])
    _release_inner_array(array.dictionary)
    free(array.children)
    free(<void*>array.buffers)


cdef void _release_inner_array(ArrowArray* array) noexcept nogil:
    if array != NULL and array.release != NULL:  # NULL: the consumer took the child
        array.release(array)
    free(array)


cdef void _drop_array_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


# -- exported streams ------------------------------------------------------------------------------------------------


cdef class _Exported:
    """What an exported stream owns: its schema, its remaining fields, and the text of its last error."""

    cdef object schema
    cdef object fields
    cdef bytes error


def export_stream(fields, schema):
    """Return a new ``arrow_array_stream`` capsule; see the pure-Python twin."""
    cdef _Exported state = _Exported()
    cdef ArrowArrayStream* stream
    state.schema = schema
    state.fields = iter(fields)
    stream = <ArrowArrayStream*>_zeroed(sizeof(ArrowArrayStream))
    stream.get_schema = _get_schema
    stream.get_next = _get_next
    stream.get_last_error = _get_last_error
    stream.release = _release_stream
    Py_INCREF(state)
    stream.private_data = <PyObject*>state
    try:
        return PyCapsule_New(stream, "arrow_array_stream", _drop_stream_capsule)
    except BaseException:
        stream.release(stream)
        free(stream)
        raise


cdef int _get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    memset(out, 0, sizeof(ArrowSchema))
    if not python_is_running():
        return EIO
    with gil:
        return _schema_of(<_Exported>stream.private_data, out)


cdef int _schema_of(_Exported state, ArrowSchema* out) noexcept:
    try:
        _fill_schema(out, state.schema)
    except BaseException as error:
        if out.release != NULL:
            out.release(out)
        return _failed(state, error)
    return 0


cdef int _get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    memset(out, 0, sizeof(ArrowArray))
    if not python_is_running():
        return EIO
    with gil:
        return _next_of(<_Exported>stream.private_data, out)


cdef int _next_of(_Exported state, ArrowArray* out) noexcept:
    try:
        field = next(state.fields, None)
        if field is not None:  # otherwise, an array without release callback marks the end
            _fill_array(out, field)
    except BaseException as error:
        if out.release != NULL:
            out.release(out)
        return _failed(state, error)
    return 0


cdef int _failed(_Exported state, error) noexcept:
    state.error = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    return ENOMEM if isinstance(error, MemoryError) else EINVAL if isinstance(error, ValueError) else EIO


cdef const char* _get_last_error(ArrowArrayStream* stream) noexcept nogil:
    if not python_is_running():
        return NULL
    with gil:
        return _error_of(<_Exported>stream.private_data)


cdef const char* _error_of(_Exported state) noexcept:
    if state.error is None:
        return NULL
    return state.error


cdef void _release_stream(ArrowArrayStream* stream) noexcept nogil:
    if python_is_running():
        with gil:
            Py_XDECREF(<PyObject*>stream.private_data)
    stream.private_data = NULL
    stream.release = NULL


cdef void _drop_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


# -- imports ---------------------------------------------------------------------------------------------------------


def import_schema(capsule):
    """Consume an ``arrow_schema`` capsule; see the pure-Python twin."""
    cdef ArrowSchema* source = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    cdef ArrowSchema schema
    check_capsule_owner(source.release == NULL, "schema")
    schema = source[0]
    source.release = NULL
    try:
        return _schema_node(&schema, 0, NodeCount())
    finally:
        with nogil:
            schema.release(&schema)


cdef object _schema_node(ArrowSchema* schema, int depth, count):
    cdef int64_t i
    count.add(depth, schema.n_children)
    if schema.format == NULL:
        raise ValueError("a field has no format")
    children = []
    for i in range(schema.n_children):
        if schema.children == NULL or schema.children[i] == NULL:
            raise ValueError(f"child {i} of {schema.n_children} of a field is missing")
        children.append(_schema_node(schema.children[i], depth + 1, count))
    dictionary = None if schema.dictionary == NULL else _schema_node(schema.dictionary, depth + 1, count)
    format = (<bytes>schema.format).decode("utf-8", "backslashreplace")
    name = "" if schema.name == NULL else (<bytes>schema.name).decode("utf-8", "backslashreplace")
    return SchemaNode(format, name, bool(schema.flags & ASD_ARROW_NULLABLE), tuple(children), dictionary)


cdef class ImportedArray:
    """Owner of an imported ``ArrowArray``, which it releases when the last reference to this object is dropped."""

    cdef ArrowArray _array
    cdef readonly object node

    def __init__(self):
        raise TypeError("import_array() and ImportedStream create an ImportedArray")

    def __dealloc__(self):
        if self._array.release != NULL:
            with nogil:  # a producer may take locks or return memory to the system
                self._array.release(&self._array)


def import_array(capsule):
    """Consume an ``arrow_array`` capsule; see the pure-Python twin."""
    cdef ArrowArray* source = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    cdef ImportedArray owner = ImportedArray.__new__(ImportedArray)
    check_capsule_owner(source.release == NULL, "array")
    owner._array = source[0]
    source.release = NULL
    owner.node = _array_node(&owner._array, 0, NodeCount())
    return owner


cdef object _array_node(ArrowArray* array, int depth, count):
    cdef int64_t i
    count.add(depth, array.n_children, array.n_buffers)
    if array.n_buffers and array.buffers == NULL:
        raise ValueError(f"the list of {array.n_buffers} buffers is missing")
    buffers = tuple([<size_t>array.buffers[i] for i in range(array.n_buffers)])
    children = []
    for i in range(array.n_children):
        if array.children == NULL or array.children[i] == NULL:
            raise ValueError(f"child {i} of {array.n_children} of an array is missing")
        children.append(_array_node(array.children[i], depth + 1, count))
    dictionary = None if array.dictionary == NULL else _array_node(array.dictionary, depth + 1, count)
    return ArrayNode(array.length, array.null_count, array.offset, buffers, tuple(children), dictionary)


cdef class ImportedStream:
    """Owner of an imported ``ArrowArrayStream``; see the pure-Python twin."""

    cdef ArrowArrayStream _stream
    cdef bint _is_busy  # a call of the producer runs without the GIL

    def __init__(self, capsule):
        cdef ArrowArrayStream* source = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        check_capsule_owner(source.release == NULL, "stream")
        if self._stream.release != NULL:
            raise ValueError("an ImportedStream can consume only one stream")
        self._stream = source[0]
        source.release = NULL

    def __dealloc__(self):
        self._release()

    def close(self):
        """Release the stream. Arrays that were read stay valid."""
        with cython.critical_section(self):
            check_stream_idle(self._is_busy)
            self._release()

    cdef void _release(self) noexcept:
        cdef ArrowArrayStream stream = self._stream
        self._stream.release = NULL
        if stream.release != NULL:
            with nogil:
                stream.release(&stream)

    def schema(self):
        """Return the schema of all arrays of the stream."""
        cdef ArrowSchema schema
        cdef int status
        memset(&schema, 0, sizeof(schema))
        self._begin()
        with nogil:
            status = self._stream.get_schema(&self._stream, &schema)
        self._is_busy = False
        if status:
            raise OSError(status, self._error())
        check_capsule_owner(schema.release == NULL, "schema")
        try:
            return _schema_node(&schema, 0, NodeCount())
        finally:
            with nogil:
                schema.release(&schema)

    def read(self):
        """Return the next array, or None at the end of the stream."""
        cdef ImportedArray owner = ImportedArray.__new__(ImportedArray)
        cdef int status
        self._begin()
        with nogil:
            status = self._stream.get_next(&self._stream, &owner._array)
        self._is_busy = False
        if status:
            owner._array.release = NULL  # not valid after an error
            raise OSError(status, self._error())
        if owner._array.release == NULL:
            return None
        owner.node = _array_node(&owner._array, 0, NodeCount())
        return owner

    cdef int _begin(self) except -1:
        """Reserve the stream for a call of the producer, which runs without the GIL."""
        with cython.critical_section(self):
            check_stream_idle(self._is_busy)
            check_capsule_owner(self._stream.release == NULL, "stream")
            self._is_busy = True
        return 0

    cdef str _error(self):
        cdef const char* text = NULL
        if self._stream.get_last_error != NULL:
            text = self._stream.get_last_error(&self._stream)
        return "the producer failed without a message" if text == NULL else (<bytes>text).decode("utf-8", "replace")


# -- memory ----------------------------------------------------------------------------------------------------------


cdef void* _zeroed(size_t nbytes) except NULL:
    cdef void* memory = calloc(1, nbytes)
    if memory == NULL:
        raise MemoryError
    return memory


cdef char* _copied(bytes text) except NULL:
    cdef size_t nbytes = len(text) + 1
    cdef char* copy = <char*>malloc(nbytes)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, <const char*>text, nbytes)
    return copy


cdef const void* _address(array) except? NULL:
    """Return the address of a buffer, which stays valid while the array exists."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    cdef const void* address = view.buf
    PyBuffer_Release(&view)
    return address
