"""What ImageCast may say, and what becomes of shapes and dtypes by it."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, ImageCast
from aiostream_data.device.image_cast import LeafFacts
from aiostream_data.errors import ImageCastError, PlanError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
UINT8 = np.dtype(np.uint8)
IMAGES = np.zeros((20, 12, 10, 3), np.uint8)
LABELS = np.arange(20)


def images(path: str = "image", *shape: int | None) -> LeafFacts:
    return LeafFacts(path, shape or (4, 12, 10, 3), UINT8)


def test_a_cast_is_equal_hashable_and_survives_pickling() -> None:
    cast = ImageCast(dtype="float16", mean=list(MEAN), std=np.array(STD), flip="random", crop=[8, 6], leaves="image")  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(cast))
    assert again == cast
    assert hash(again) == hash(cast)
    assert (cast.mean, cast.std, cast.crop, cast.leaves) == (MEAN, STD, (8, 6), ("image",))


def test_a_cast_says_in_one_line_what_it_does() -> None:
    assert str(ImageCast()) == "ImageCast(float32 NCHW)"
    cast = ImageCast(dtype="float16", layout="NHWC", flip="random", crop=(224, 192), crop_at="random")
    assert str(cast) == "ImageCast(float16 NHWC, crop 224x192 random, flip random)"


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), "float16", "f2"])
def test_dtypes_may_be_given_as_numpy_takes_them(dtype: Any) -> None:
    assert ImageCast(dtype=dtype).dtype == "float16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float64"}, "dtype must be 'float16' or 'float32', got 'float64'"),
        ({"dtype": "bfloat16"}, "NumPy has no dtype 'bfloat16'"),
        ({"dtype": "nonsense"}, "dtype must be"),
        ({"layout": "CHW"}, "layout must be 'NCHW' or 'NHWC', got 'CHW'"),
        ({"mean": "0.5"}, "mean must be a number, or one per channel, got '0.5'"),
        ({"mean": ()}, "mean must be one or more finite numbers"),
        ({"mean": (0.5, float("nan"), 0.5)}, "mean must be one or more finite numbers"),
        ({"std": 0}, "std must be above 0, got 0"),
        ({"std": (1, -1, 1)}, "std must be above 0"),
        ({"mean": (0.5, 0.5), "std": STD}, "mean has 2 channels, but std has 3"),
        ({"scale": 0}, "scale must be a number other than 0, got 0"),
        ({"scale": float("inf")}, "scale must be a number other than 0, got inf"),
        ({"flip": "sometimes"}, "flip must be True, False or 'random', got 'sometimes'"),
        ({"flip": 1}, "flip must be True, False or 'random', got 1"),
        ({"crop": 224}, "crop must be (height, width) or None, got 224"),
        ({"crop": (224,)}, "crop must be (height, width) or None"),
        ({"crop": (224, 0)}, "crop must be at least (1, 1)"),
        ({"crop": (224, 1.5)}, "crop must be an integer, got 1.5"),
        ({"crop": (4, 4), "crop_at": "center"}, "crop_at must be 'middle' or 'random', got 'center'"),
        ({"crop_at": "random"}, 'crop_at="random" requires crop='),
        ({"leaves": ()}, "leaves must be leaf names"),
        ({"leaves": ("image", "")}, "leaves must be leaf names"),
        ({"leaves": 3}, "leaves must be leaf names"),
        ({"seed": "x"}, "seed must be an integer, got 'x'"),
        ({"dtype": "float16", "std": 1e-6}, "float16 holds values up to 65504, but this cast produces up to 1e+06"),
        ({"dtype": "float16", "std": 1e-300}, "float16 holds values up to 65504"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        ImageCast(**arguments)


def test_factors_are_rounded_once_from_the_exact_ones() -> None:
    gain, bias = ImageCast(mean=MEAN, std=STD).factors(3)
    assert gain.dtype == bias.dtype == np.float32
    np.testing.assert_array_equal(gain, np.float32(1 / 255 / np.array(STD)))
    np.testing.assert_array_equal(bias, np.float32(-np.array(MEAN) / np.array(STD)))


def test_one_number_stands_for_every_channel() -> None:
    assert ImageCast(mean=0.5, std=STD).factors(3).shape == (2, 3)
    assert ImageCast(mean=0.5, std=0.25).factors(7).shape == (2, 7)


def test_every_dense_uint8_leaf_of_four_axes_is_cast_and_no_other() -> None:
    others = [
        LeafFacts("label", (4,), np.dtype(np.int64)),
        LeafFacts("mask", (4, 12, 10), UINT8),
        LeafFacts("film", (4, 5, 12, 10, 3), UINT8),
        LeafFacts("depth", (4, 12, 10, 1), np.dtype(np.float32)),
        LeafFacts("frames.values", (9, 12, 10, 3), UINT8, dense=False),
    ]
    found = ImageCast().results([*others, images("left"), images("right", 4, 6, 8, 1)])
    assert all(after is before for after, before in zip(found[:-2], others, strict=True))
    assert [leaf.shape for leaf in found[-2:]] == [(4, 3, 12, 10), (4, 1, 6, 8)]
    assert [leaf.dtype for leaf in found[-2:]] == [np.dtype(np.float32)] * 2


def test_only_named_leaves_are_cast_when_leaves_are_named() -> None:
    left, right = ImageCast(leaves="left", dtype="float16", layout="NHWC").results([images("left"), images("right")])
    assert (left.shape, left.dtype) == ((4, 12, 10, 3), np.dtype(np.float16))
    assert right.dtype == UINT8


@pytest.mark.parametrize(
    ("cast", "leaves", "message"),
    [
        (
            ImageCast(),
            [LeafFacts("x", (4, 3), UINT8)],
            "no leaf of the batch is a dense uint8 array .* x (uint8 of shape (4, 3))",
        ),
        (ImageCast(leaves="y"), [images("x")], "leaf 'y': the batch has no such leaf. Its leaves are x"),
        (
            ImageCast(leaves="x"),
            [LeafFacts("x", (4, 1, 1, 1), np.dtype("f4"))],
            "leaf 'x': the leaf is float32 of shape",
        ),
        (
            ImageCast(leaves="x"),
            [LeafFacts("x", (4, 1, 1, 1), UINT8, False)],
            "leaf 'x': the leaf is not a dense array",
        ),
        (ImageCast(crop=(13, 4)), [images("x")], "leaf 'x': images are 12 pixels high, but crop needs 13"),
        (ImageCast(crop=(4, 11)), [images("x")], "leaf 'x': images are 10 pixels wide, but crop needs 11"),
        (ImageCast(mean=(0.5, 0.5)), [images("x")], "leaf 'x': images have 3 channels, but mean has 2"),
    ],
)
def test_batches_that_do_not_fit_are_told_by_leaf(cast: ImageCast, leaves: list[LeafFacts], message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(ImageCastError, match=pattern):
        cast.results(leaves)


def test_the_error_says_which_leaf_and_survives_pickling() -> None:
    with pytest.raises(ImageCastError) as caught:
        ImageCast(leaves="y").results([images("x")])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.leaf, again.reason, str(again)) == ("y", caught.value.reason, str(caught.value))
    assert isinstance(again, asd.errors.DataError)


# -- in a plan


def batches(**leaves: Any) -> Dataset[Any]:
    return Dataset.from_tensor_slices(leaves or {"image": IMAGES, "label": LABELS}).batch(4)


@pytest.mark.parametrize("drop", [False, True])
def test_the_spec_of_elements_is_that_of_what_comes_out(drop: bool) -> None:
    cast = ImageCast(dtype="float16", crop=(8, 6))
    dataset = Dataset.from_tensor_slices({"image": IMAGES, "label": LABELS}).batch(4, drop_remainder=drop)
    spec = dataset.to_device("cpu", transform=cast).element_spec
    rows = 4 if drop else None
    assert spec["image"] == asd.ArraySpec((rows, 3, 8, 6), np.dtype(np.float16))
    assert spec["label"] == dataset.element_spec["label"]


def test_nothing_is_claimed_of_elements_of_which_nothing_is_known() -> None:
    dataset = Dataset.range(9).map(lambda number: IMAGES[number]).batch(3)
    assert dataset.to_device("cpu", transform=ImageCast()).element_spec == dataset.element_spec


def test_a_leaf_of_unknown_shape_has_the_dtype_that_is_asked_for() -> None:
    signature = {"image": asd.ArraySpec(None, np.dtype(np.uint8))}
    dataset = Dataset.from_generator(lambda: iter([{"image": IMAGES}]), signature=signature)
    named = dataset.to_device("cpu", transform=ImageCast(leaves="image"))
    assert named.element_spec["image"] == asd.ArraySpec(None, np.dtype(np.float32))
    assert dataset.to_device("cpu", transform=ImageCast()).element_spec["image"] == asd.ArraySpec(None, None)


@pytest.mark.parametrize(
    ("dataset", "cast", "message"),
    [
        (batches(image=IMAGES.astype(np.float32)), ImageCast(), "no leaf of the batch is a dense uint8 array"),
        (Dataset.from_tensor_slices({"image": IMAGES}), ImageCast(), "no leaf of the batch is a dense uint8 array"),
        (batches(), ImageCast(leaves="picture"), "the batch has no such leaf"),
        (batches(), ImageCast(crop=(224, 224)), "12 pixels high, but crop needs 224"),
        (batches(), "float16", "transform must be an ImageCast or None, got 'float16'"),
    ],
)
def test_a_plan_that_cannot_be_cast_is_refused_where_it_is_written(dataset: Any, cast: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        dataset.to_device("cpu", transform=cast)


def test_a_plan_explains_its_cast_and_counts_the_batches_that_it_makes() -> None:
    with_cast = batches().to_device("cpu", depth=2, transform=ImageCast(dtype="float16"))
    assert "ImageCast(float16 NCHW)" in with_cast.explain()
    batch = 4 * (12 * 10 * 3 + 8)
    parts = [part for part in with_cast.memory_bound().parts if "cast" in part.what]
    assert [part.nbytes for part in parts] == [2 * batch * 2]
    assert not [part for part in batches().to_device("cpu").memory_bound().parts if "cast" in part.what]
