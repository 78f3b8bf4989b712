"""The kernels of the Arrow C data interface, native and in Python: who owns what, and until when."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from arrow_producers import bits

from aiostream_data._native import arrow_c_py
from aiostream_data._native.arrow_nodes import ArrowField
from aiostream_data._native.arrow_structs import (
    ARRAY_NAME,
    RELEASE,
    SCHEMA_NAME,
    STREAM_NAME,
    CArray,
    CSchema,
    CStream,
    pointer_of,
)

arrow_c = pytest.importorskip("aiostream_data._native.arrow_c", exc_type=ImportError)
both = pytest.mark.parametrize("kernels", [arrow_c, arrow_c_py], ids=["native", "python"])


def field(**buffers: Any) -> ArrowField:
    """A struct with one int32 column per keyword."""
    children = tuple(ArrowField(name, "i", len(one), (None, one.view(np.uint8))) for name, one in buffers.items())
    return ArrowField("", "+s", 3, (None,), children)


def watched() -> tuple[Any, weakref.ref[Any]]:
    """A buffer, and a reference that is dead when nobody holds the buffer."""
    array = np.arange(3, dtype=np.int32)
    return array, weakref.ref(array)


def held(array: Any) -> ArrowField:
    """A field that holds the array itself, not a view."""
    return ArrowField("x", "i", 3, (None, array))


# -- exports ---------------------------------------------------------------------------------------------------------


@both
def test_what_is_exported_is_imported_again_with_the_same_addresses(kernels: Any) -> None:
    x, y = np.arange(3, dtype=np.int32), np.arange(3, 6, dtype=np.int32)
    words = ArrowField("", "i", 2, (None, x))
    coded = ArrowField("coded", "c", 3, (bits(1, 0, 1), y), (), 1, False, words)
    exported = ArrowField("ü", "+s", 3, (None,), (held(x), coded))
    schema = kernels.import_schema(kernels.export_schema(exported))
    owner = kernels.import_array(kernels.export_array(exported))
    assert (schema.format, schema.name, [child.name for child in schema.children]) == ("+s", "ü", ["x", "coded"])
    assert [child.nullable for child in schema.children] == [True, False]
    assert schema.children[1].dictionary.format == "i"
    first, second = owner.node.children
    assert first.buffers == (0, x.ctypes.data)
    assert (second.length, second.null_count, second.offset) == (3, 1, 0)
    assert second.dictionary.buffers == (0, x.ctypes.data)


@both
def test_an_array_that_nobody_consumes_is_released_with_its_capsule(kernels: Any) -> None:
    array, alive = watched()
    capsule = kernels.export_array(held(array))
    del array
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


@both
def test_a_consumed_array_lives_until_it_is_released(kernels: Any) -> None:
    array, alive = watched()
    owner = kernels.import_array(kernels.export_array(held(array)))
    del array
    gc.collect()
    assert alive() is not None
    del owner
    assert alive() is None


@both
def test_a_capsule_can_be_consumed_once(kernels: Any) -> None:
    exported = held(np.arange(3, dtype=np.int32))
    array, schema = kernels.export_array(exported), kernels.export_schema(exported)
    stream = kernels.export_stream([exported], exported)
    for consume, capsule in (
        (kernels.import_array, array),
        (kernels.import_schema, schema),
        (kernels.ImportedStream, stream),
    ):
        consume(capsule)
        with pytest.raises(ValueError, match=r"already consumed or released\. Request a new capsule"):
            consume(capsule)


@both
def test_a_child_that_the_consumer_took_outlives_its_parent(kernels: Any) -> None:
    (a, a_alive), (b, b_alive) = watched(), watched()
    capsule = kernels.export_array(ArrowField("", "+s", 3, (None,), (held(a), held(b))))
    del a, b
    parent = CArray.from_address(pointer_of(capsule, ARRAY_NAME))
    children = (ctypes.c_size_t * 2).from_address(parent.children)
    taken = CArray()
    ctypes.memmove(ctypes.addressof(taken), children[0], ctypes.sizeof(CArray))
    CArray.from_address(children[0]).release = None
    del capsule
    gc.collect()
    assert (a_alive() is not None, b_alive()) == (True, None)
    RELEASE(taken.release)(ctypes.addressof(taken))
    assert taken.release is None
    assert a_alive() is None


@both
def test_a_schema_that_the_consumer_took_in_parts_is_released_in_parts(kernels: Any) -> None:
    inner = ArrowField("", "u", 0, ())
    exported = ArrowField("", "+s", 0, (), (ArrowField("a", "i", 0, (), (), 0, True, inner),))
    capsule = kernels.export_schema(exported)
    parent = CSchema.from_address(pointer_of(capsule, SCHEMA_NAME))
    child = ctypes.c_void_p.from_address(parent.children).value or 0
    taken = CSchema()
    ctypes.memmove(ctypes.addressof(taken), child, ctypes.sizeof(CSchema))
    CSchema.from_address(child).release = None
    RELEASE(parent.release)(ctypes.addressof(parent))
    assert parent.release is None
    assert ctypes.string_at(taken.name) == b"a"
    assert ctypes.string_at(CSchema.from_address(taken.dictionary).format) == b"u"
    RELEASE(taken.release)(ctypes.addressof(taken))
    assert taken.release is None


@both
def test_any_thread_can_release_an_array(kernels: Any) -> None:
    owners = []
    alive = []
    for _ in range(50):
        array, reference = watched()
        owners.append(kernels.import_array(kernels.export_array(held(array))))
        alive.append(reference)
        del array
    threads = [threading.Thread(target=lambda: [owners.pop() for _ in range(10)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for one in alive if one() is not None] == []


@both
@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_is_no_c_string_is_refused(kernels: Any, name: str) -> None:
    bad = ArrowField("", "+s", 0, (None,), (ArrowField("a", "i", 0, ()), ArrowField(name, "i", 0, ())))
    with pytest.raises(ValueError, match=r"NUL character|surrogates"):
        kernels.export_schema(bad)


@both
def test_an_export_that_fails_half_way_holds_nothing(kernels: Any) -> None:
    array, alive = watched()
    strided = np.arange(6, dtype=np.int32)[::2]
    bad = ArrowField("", "+s", 3, (None,), (held(array), held(strided)))
    with pytest.raises(ValueError, match="a buffer of the field 'x' is not contiguous"):
        kernels.export_array(bad)
    del bad, array
    gc.collect()
    assert alive() is None


# -- exported streams ------------------------------------------------------------------------------------------------


@both
def test_a_stream_gives_its_schema_and_each_array(kernels: Any) -> None:
    fields = [field(x=np.arange(i, i + 3, dtype=np.int32)) for i in range(3)]
    stream = kernels.ImportedStream(kernels.export_stream(iter(fields), fields[0]))
    assert stream.schema() == stream.schema()
    owners = [stream.read() for _ in range(3)]
    expected = [one.children[0].buffers[1].ctypes.data for one in fields]  # type: ignore[union-attr]
    assert [owner.node.children[0].buffers[1] for owner in owners] == expected
    assert stream.read() is None
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="already consumed or released"):
        stream.read()


@both
def test_a_stream_that_nobody_consumes_drops_its_fields(kernels: Any) -> None:
    array, alive = watched()
    capsule = kernels.export_stream([held(array)], held(array))
    del array
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


@both
@pytest.mark.parametrize(
    ("error", "number"), [(ValueError("odd"), 22), (MemoryError("odd"), 12), (KeyboardInterrupt("odd"), 5)]
)
def test_an_error_of_the_fields_reaches_the_consumer_as_text(kernels: Any, error: BaseException, number: int) -> None:
    def fields() -> Iterator[ArrowField]:
        yield held(np.arange(3, dtype=np.int32))
        raise error

    stream = kernels.ImportedStream(kernels.export_stream(fields(), held(np.arange(3, dtype=np.int32))))
    assert stream.read() is not None
    with pytest.raises(OSError, match=f"{type(error).__name__}: odd") as caught:
        stream.read()
    assert caught.value.errno == number


@both
def test_a_stream_without_an_error_has_no_message(kernels: Any) -> None:
    capsule = kernels.export_stream([], held(np.arange(3, dtype=np.int32)))
    stream = CStream.from_address(pointer_of(capsule, STREAM_NAME))
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(stream.get_last_error)
    assert get(ctypes.addressof(stream)) is None


@both
def test_a_schema_that_cannot_be_written_is_an_error_of_the_stream(kernels: Any) -> None:
    bad = ArrowField("", "+s", 0, (None,), (ArrowField("a", "i", 0, ()), ArrowField("b\0", "i", 0, ())))
    stream = kernels.ImportedStream(kernels.export_stream([], bad))
    with pytest.raises(OSError, match="NUL character"):
        stream.schema()


@both
def test_a_thread_that_reads_beside_another_is_refused(kernels: Any) -> None:
    inside, go = threading.Event(), threading.Event()

    def fields() -> Iterator[ArrowField]:
        inside.set()
        go.wait()
        yield held(np.arange(3, dtype=np.int32))

    stream = kernels.ImportedStream(kernels.export_stream(fields(), held(np.arange(3, dtype=np.int32))))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(stream.read()))
    thread.start()
    inside.wait()
    for call in (stream.read, stream.schema, stream.close):
        with pytest.raises(ValueError, match="another thread is reading"):
            call()
    go.set()
    thread.join()
    assert found[0].node.length == 3
    assert stream.read() is None
