"""The kernels of the Arrow C data interface, native and in Python: what they read, own and refuse."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
from arrow_producers import Made, MadeStream, numbers

from aiostream_data._native import arrow_c_py
from aiostream_data._native.arrow_nodes import MAX_DEPTH, MAX_NODES
from aiostream_data._native.arrow_structs import (
    CArray,
    new_capsule,
)

arrow_c = pytest.importorskip("aiostream_data._native.arrow_c", exc_type=ImportError)
both = pytest.mark.parametrize("kernels", [arrow_c, arrow_c_py], ids=["native", "python"])


@both
def test_an_imported_structure_is_released_exactly_once(kernels: Any) -> None:
    made = Made("i", 3, [None, numbers(1, 2, 3)], name="a")
    schema, array = made.__arrow_c_array__()
    assert (made.schema.release is None, made.array.release is None) == (False, False)
    assert kernels.import_schema(schema).name == "a"
    owner = kernels.import_array(array)
    assert (made.schema.release, made.array.release) == (None, None)
    assert (made.schema_releases, made.array_releases) == (1, 0)
    assert owner.node.buffers == tuple(made.buffer_addresses)
    del owner, schema, array
    assert (made.schema_releases, made.array_releases) == (1, 1)


@both
def test_a_missing_name_is_empty_and_one_that_is_no_utf8_is_escaped(kernels: Any) -> None:
    for address, name in ((None, ""), (ctypes.addressof(odd := ctypes.create_string_buffer(b"a\xff")), "a\\xff")):
        made = Made("i", 0, [None, None])
        made.schema.name = address
        assert kernels.import_schema(made.__arrow_c_array__()[0]).name == name
    assert odd.value


def damaged(**fields: Any) -> Made:
    """A struct of one child, in which both structures have these fields."""
    made = Made("+s", 0, [None], [Made("i", 0, [None, None])])
    for name, value in fields.items():
        for struct in (made.schema, made.array):
            if hasattr(struct, name):
                setattr(struct, name, value)
    return made


@both
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_children": -1}, "-1 children"),
        ({"n_children": MAX_NODES}, f"more than {MAX_NODES} fields and buffers"),
        ({"n_children": 2**62}, f"more than {MAX_NODES} fields and buffers"),
        ({"children": None}, "child 0 of 1 of (a field|an array) is missing"),
    ],
)
def test_numbers_of_children_that_cannot_be_are_refused(kernels: Any, fields: dict[str, Any], said: str) -> None:
    made = damaged(**fields)
    schema, array = made.__arrow_c_array__()
    with pytest.raises(ValueError, match=said):
        kernels.import_schema(schema)
    with pytest.raises(ValueError, match=said):
        kernels.import_array(array)
    gc.collect()
    assert (made.schema_releases, made.array_releases) == (1, 1)


@both
def test_a_missing_child_is_refused(kernels: Any) -> None:
    made = damaged()
    made.child_address(0, None)
    for consume, capsule in zip((kernels.import_schema, kernels.import_array), made.__arrow_c_array__(), strict=True):
        with pytest.raises(ValueError, match="child 0 of 1"):
            consume(capsule)


@both
def test_a_structure_that_contains_itself_is_refused(kernels: Any) -> None:
    for struct in ("schema", "array"):
        made = damaged()
        table = (ctypes.c_void_p * 1)(ctypes.addressof(getattr(made, struct)))
        getattr(made, struct).children = ctypes.addressof(table)
        consume = {"schema": kernels.import_schema, "array": kernels.import_array}[struct]
        with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels"):
            consume(made.__arrow_c_array__()[struct == "array"])


@both
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_buffers": -1}, "-1 buffers"),
        ({"n_buffers": 2**40}, "fields and buffers"),
        ({"buffers": None}, "the list of 1 buffers is missing"),
    ],
)
def test_numbers_of_buffers_that_cannot_be_are_refused(kernels: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kernels.import_array(damaged(**fields).__arrow_c_array__()[1])


@both
def test_a_schema_without_a_format_is_refused(kernels: Any) -> None:
    with pytest.raises(ValueError, match="a field has no format"):
        kernels.import_schema(damaged(format=None).__arrow_c_array__()[0])


@both
@pytest.mark.parametrize("consume", ["import_schema", "import_array", "ImportedStream"])
def test_other_capsules_and_objects_are_refused(kernels: Any, consume: str) -> None:
    other = new_capsule(CArray(), b"dltensor", 0)
    for odd in (other, None, 7, "capsule"):
        with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
            getattr(kernels, consume)(odd)


@both
def test_an_array_of_a_stream_outlives_the_stream(kernels: Any) -> None:
    made = [Made("i", 1, [None, numbers(i)]) for i in range(2)]
    source = MadeStream(made)
    stream = kernels.ImportedStream(source.__arrow_c_stream__())
    assert stream.schema().format == "i"
    owner = stream.read()
    stream.close()
    assert (source.releases, made[0].array_releases) == (1, 0)
    del owner, stream
    assert (source.releases, made[0].array_releases, made[1].array_releases) == (1, 1, 0)


@both
@pytest.mark.parametrize(("failure", "said"), [("disk full", "disk full"), (None, "failed without a message")])
def test_the_error_of_a_producer_is_raised_with_its_message(kernels: Any, failure: str | None, said: str) -> None:
    source = MadeStream([Made("i", 1, [None, numbers(1)])], failure)
    stream = kernels.ImportedStream(source.__arrow_c_stream__())
    stream.read()
    with pytest.raises(OSError, match=said):
        stream.read()
    del stream
    assert source.releases == 1


@both
def test_a_structure_after_an_error_is_not_released(kernels: Any) -> None:
    made = Made("i", 1, [None, numbers(1)])
    stream = kernels.ImportedStream(MadeStream([made], "no schema", 5).__arrow_c_stream__())
    with pytest.raises(OSError, match="no schema"):
        stream.schema()
    assert made.schema_releases == 0
