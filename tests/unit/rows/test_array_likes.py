"""What counts as an array among the values of elements, and what is refused because it would lose something."""

from __future__ import annotations

import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from other_arrays import (
    ArrayImpl,
    Asking,
    CupyArray,
    Exporting,
    Half,
    Int64Scalar,
    Interfaced,
    Labelled,
    Sparse,
    Tensor,
    WithUnit,
    references,
)
from PIL import Image

from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, leaf_spec
from aiostream_data.plan.values import text_of
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, copy_of, holds_arrays, image_nbytes, type_name
from aiostream_data.rows.object_nbytes import ITEM_NBYTES_GUESS, object_nbytes
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.testing.comparing import canonical, same


class Level(enum.IntEnum):
    LOW = 1


class Whole(int):
    pass


ONE = np.ones(2, np.float32)

CLEAR: dict[str, tuple[Callable[[], Any], Any]] = {
    "tensor": (lambda: Tensor([1, 2], np.float16), np.array([1, 2], np.float16)),
    "tensor without axes": (lambda: Tensor(3, np.int32), np.array(3, np.int32)),
    "tensor of bool": (lambda: Tensor([True]), np.array([True])),
    "jax": (lambda: ArrayImpl([1, 2], np.uint8), np.array([1, 2], np.uint8)),
    "dlpack": (lambda: Exporting([[1.5]]), np.array([[1.5]])),
    "dlpack without axes": (lambda: Exporting(1.5), np.array(1.5)),
    "dlpack in page-locked memory": (lambda: Exporting([1]), np.array([1])),
    "image RGB": (lambda: Image.new("RGB", (3, 2), (1, 2, 3)), np.full((2, 3, 3), (1, 2, 3), np.uint8)),
    "image L": (lambda: Image.new("L", (3, 2), 9), np.full((2, 3), 9, np.uint8)),
    "image 1": (lambda: Image.new("1", (3, 2), 1), np.ones((2, 3), np.bool_)),
    "image I;16": (lambda: Image.new("I;16", (3, 2), 300), np.full((2, 3), 300, np.uint16)),
    "image I;16B": (lambda: Image.new("I;16B", (3, 2), 300), np.full((2, 3), 300, np.uint16)),
    "image F": (lambda: Image.new("F", (3, 2), 0.5), np.full((2, 3), 0.5, np.float32)),
    "image RGBA": (lambda: Image.new("RGBA", (1, 1), (1, 2, 3, 4)), np.array([[[1, 2, 3, 4]]], np.uint8)),
    "recarray": (lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), None),
    "subclass": (lambda: ONE.view(type("Sub", (np.ndarray,), {})), ONE),
    "structured": (lambda: np.array((1, 2.0), [("a", "i4"), ("b", "f8")])[()], None),
    "datetime64": (lambda: np.datetime64("2020-01-01", "D"), np.array("2020-01-01", "M8[D]")),
    "int": (lambda: 3, np.array(3)),
    "int of 64 bits without a sign": (lambda: 2**63, np.array(2**63, np.uint64)),
    "int enum": (lambda: Level.LOW, np.array(1)),
    "int subclass": (lambda: Whole(2), np.array(2)),
    "list": (lambda: [1, 2.5], np.array([1, 2.5])),
    "list of bool and int": (lambda: [True, 2], np.array([1, 2])),
    "empty list": (list, np.array([])),
    "nested empty list": (lambda: [[], []], np.empty((2, 0))),
    "list of tensors": (
        lambda: [Tensor([1, 2], np.int8), Tensor([3, 4], np.int8)],
        np.array([[1, 2], [3, 4]], np.int8),
    ),
    "list of tensors without axes": (lambda: [Tensor(1, np.int8)], np.array([1], np.int8)),
    "list of images": (lambda: [Image.new("L", (3, 2), 9)], np.full((1, 2, 3), 9, np.uint8)),
    "list of arrays": (lambda: [ONE, ONE], np.ones((2, 2), np.float32)),
    "list of NumPy's numbers": (lambda: [np.float32(1.5), 2], np.array([1.5, 2])),
    "list of large ints and floats that hold them": (lambda: [2**60, 0.5], np.array([2**60, 0.5])),
    "list of datetime64": (lambda: [np.datetime64("2020-01-01")], np.array(["2020-01-01"], "M8[D]")),
}


@pytest.mark.parametrize(("make", "wanted"), CLEAR.values(), ids=CLEAR)
def test_a_clear_array_has_the_numpy_form_of_its_values(make: Callable[[], Any], wanted: Any) -> None:
    wanted = np.asarray(make()) if wanted is None else wanted
    found = array_of(make())
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape, found.dtype.isnative) == (wanted.dtype, wanted.shape, True)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("memory", [1, 3, 11])
def test_memory_that_the_cpu_reads_without_waiting_is_host_memory(memory: int) -> None:
    found = array_of(Exporting([1, 2], device=(memory, 0)))
    assert found is not None
    assert found.tolist() == [1, 2]


def masked(masks: bool) -> Any:
    return np.ma.array([1, 2], mask=[masks, False])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "tensor on a GPU": (
        lambda: Tensor([1], device="cuda:1"),
        r"on cuda:1\. Use \.cpu\(\) in map\(\), and to_device\(\)",
    ),
    "tensor without memory": (lambda: Tensor([1], device="meta"), "on meta"),
    "tensor with a gradient": (lambda: Tensor([1.0], requires_grad=True), r"gradient.*\.detach\(\)"),
    "bfloat16": (lambda: Half([1.0]), r"NumPy does not support torch\.bfloat16\. Use \.float\(\)"),
    "sparse": (lambda: Sparse([1.0]), r"Sparse layout.*to_dense\(\)"),
    "jax on a GPU": (lambda: ArrayImpl([1], platform="gpu"), r"on gpu:0\. Use jax\.device_get\(\)"),
    "cupy": (lambda: CupyArray([1]), r"on cuda:0\. Use cupy\.asnumpy\(\)"),
    "dlpack on another device": (lambda: Exporting([1], device=(7, 2)), "device type 7:2. Copy it to host memory"),
    "dlpack that cannot say where": (lambda: Exporting([1], device=(None, None)), "TypeError"),  # type: ignore[arg-type]
    "unified memory": (lambda: Exporting([1], device=(13, 0)), "on cuda:0"),
    "palette": (lambda: Image.new("P", (3, 2)), r"\.convert\('RGB'\) in map\(\) for colours, or np\.asarray\(\)"),
    "palette with alpha": (lambda: Image.new("PA", (3, 2)), "mode PA"),
    "masked": (lambda: masked(True), r"mask would be lost.*\.filled\(\)"),
    "masked with nothing masked": (lambda: masked(False), "mask would be lost"),
    "masked without axes": (lambda: np.ma.array(1, mask=True), "mask would be lost"),
    "the masked constant": (lambda: np.ma.masked, "mask would be lost"),
    "with a unit": (lambda: ONE.view(WithUnit), "such as a unit"),
    "labels": (lambda: Labelled([1, 2]), r"labels would be lost\. Use \.to_numpy\(\)"),
    "arrow scalar": (lambda: Int64Scalar(1), r"may be null\. Use \.as_py\(\)"),
    "an object with __array__": (Asking, r"np\.asarray\(\) of it from the function"),
    "an object with an attribute": (Interfaced, r"np\.asarray\(\) of it from the function"),
    "tensors in an object array": (lambda: references(Tensor([1]), None), r"contains torch\.Tensor"),
    "arrays in an object array": (lambda: np.array([ONE, None], object), r"contains numpy\.ndarray"),
    "NumPy's numbers in an object array": (lambda: np.array([np.float32(1), None], object), r"contains numpy\.float32"),
    "list of tensors on a GPU": (lambda: [Tensor([1], device="cuda:0")], "on cuda:0"),
    "list of tensors that differ": (lambda: [Tensor([1]), Tensor([1, 2])], "differ in length"),
    "list of lists that differ": (lambda: [[1], [1, 2]], "differ in length"),
    "list of lists beside numbers": (lambda: [1, [2, 3]], "differ in length"),
    "list of masked arrays": (lambda: [masked(True)], "mask would be lost"),
    "list of numbers and None": (lambda: [1, None], "int and NoneType|NoneType and int"),
    "list of numbers and text": (lambda: [1, "a"], "int and str"),
    "list of tensors and None": (lambda: [Tensor([1]), None], r"torch\.Tensor and NoneType"),
    "list of an int beyond 64 bits": (lambda: [2**70], "beyond 64 bits"),
    "list of ints that no dtype holds": (lambda: [2**63, -1], "beyond 64 bits"),
    "list of an int that a float would round": (lambda: [2**53 + 1, 0.5], "rounded to floats"),
    "list of an array that a float would round": (lambda: [np.int64(2**53 + 1), 0.5], "rounded to floats"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_would_lose_something_is_refused_with_the_cure(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(NoNumpyFormError, match=words):
        array_of(make())


def test_nobody_is_asked_who_would_have_to_work_for_it() -> None:
    value = Asking()
    with pytest.raises(NoNumpyFormError):
        array_of(value)
    assert value.asked == 0


def test_who_is_given_for_an_array_is_asked() -> None:
    asked = array_of(Asking([1, 2]), explicit=True)
    labels = array_of(Labelled([1, 2]), explicit=True)
    assert asked is not None
    assert labels is not None
    assert asked.tolist() == labels.tolist() == [1, 2]
    with pytest.raises(NoNumpyFormError, match="on cuda:0"):
        array_of(CupyArray([1]), explicit=True)
    with pytest.raises(NoNumpyFormError, match="mask"):
        array_of(masked(True), explicit=True)


def cyclic() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    ["a", b"a", np.str_("a"), np.bytes_(b"a"), None, {1}, range(2), Decimal(1), 2**64, -(2**63) - 1, object(),
     bytearray(2), memoryview(b"a"), ["a"], ["a", None], [{"a": ONE}], [Decimal(1)], ["a", ["b"]], cyclic(),
     RaggedArray(np.arange(3), np.array([0, 1, 3]))],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_all_else_is_no_array(value: Any) -> None:
    assert array_of(value) is None


def test_classes_have_the_names_that_users_know() -> None:
    values = [Tensor([1]), Half([1]), ArrayImpl([1]), CupyArray([1]), Image.new("L", (1, 1)), ONE, np.float32(1), 1]
    names = ["torch.Tensor", "torch.Tensor", "jax.Array", "cupy.ndarray", "PIL.Image.Image"]
    assert [type_name(type(value)) for value in values] == [*names, "numpy.ndarray", "numpy.float32", "int"]


def test_text_in_an_object_array_is_no_array() -> None:
    assert not holds_arrays(np.array(["a", b"b", np.str_("c"), None, 1], object))
    assert not holds_arrays(ONE)
    assert holds_arrays(np.array([None, ONE], object)[::-1])


# -- what is known of them elsewhere


def test_a_copy_of_a_tensor_or_an_image_is_written_into_alone() -> None:
    tensor, image, other = Tensor([1, 2]), Image.new("L", (2, 2), 1), Asking()
    copied = copy_of(tensor)
    copied.content[:] = 9
    copy_of(image).putpixel((0, 0), 9)
    assert tensor.content.tolist() == [1, 2]
    assert image.getpixel((0, 0)) == 1
    assert copy_of(other) is other


@pytest.mark.parametrize(("mode", "nbytes"), [("L", 6), ("RGB", 18), ("F", 24), ("P", 6)])
def test_an_image_is_counted_by_its_pixels(mode: str, nbytes: int) -> None:
    assert image_nbytes(Image.new(mode, (3, 2))) == object_nbytes(Image.new(mode, (3, 2))) == nbytes


def test_values_of_other_libraries_are_counted_by_what_they_hold() -> None:
    assert object_nbytes({"a": Tensor([1, 2]), "b": [CupyArray([1.0])]}) == 24
    assert object_nbytes(Asking()) == ITEM_NBYTES_GUESS


def test_the_spec_of_an_element_is_that_of_its_arrays_and_unknown_where_they_have_none() -> None:
    assert leaf_spec(Tensor([[1, 2]], np.int16)) == ArraySpec((1, 2), np.dtype(np.int16))
    assert leaf_spec(Image.new("RGB", (3, 2))) == ArraySpec((2, 3, 3), np.dtype(np.uint8))
    assert leaf_spec(["a", "b"]) == leaf_spec(Decimal(1)) == ArraySpec((), np.dtype(object))
    for value in (CupyArray([1]), Asking(), masked(True), [1, None]):
        assert leaf_spec(value) is UNKNOWN_SPEC


def test_the_text_of_a_tensor_tells_its_content() -> None:
    texts = {
        text_of(value) for value in (Tensor([1]), Tensor([2]), Image.new("L", (1, 1), 1), Image.new("L", (1, 1), 2))
    }
    assert len(texts) == 4
    assert text_of(Tensor([1])) == text_of(Tensor([1]))
    assert text_of(CupyArray([1])) == "cupy.ndarray"


def test_tensors_are_the_same_when_their_bits_are() -> None:
    assert same({"a": Tensor([1.0, np.nan])}, {"a": Tensor([1.0, np.nan])})
    assert not same(Tensor([1.0]), Tensor([2.0]))
    assert not same(Tensor([1.0]), np.array([1.0]))
    assert not same(Image.new("L", (1, 1), 1), Image.new("L", (1, 1), 2))
    assert canonical(CupyArray([1])) != canonical(CupyArray([1]))
