"""Where images and what belongs to them stand before and after a cast, and what is drawn for their rows."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.cast_on_host import cast_batch
from aiostream_data.device.cast_plan import LEFT, MIRRORED, TOP, RowKeys, places, with_cast
from aiostream_data.device.host import aligned_bytes
from aiostream_data.device.image_cast import ImageCast
from aiostream_data.device.layout import TakenApart, fill, take_apart, views
from aiostream_data.errors import ImageCastError
from aiostream_data.rows.ragged import RaggedArray

ROWS = 5
CAST = ImageCast(dtype="float16", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))


def keys_of(rows: int, seed: int = 0) -> RowKeys:
    return np.random.default_rng(seed).integers(0, 2**64, rows, np.uint64)


def pictures(rows: int = ROWS, height: int = 6, width: int = 7, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(rows).integers(0, 256, (rows, height, width, channels), np.uint8)


def batch_with_everything() -> dict[str, Any]:
    return {
        "number": np.arange(ROWS),
        "left": pictures(),
        "words": RaggedArray(np.arange(9.0), np.array([0, 1, 2, 3, 4, 9])),
        "none": np.zeros((0, 4), np.float32),
        "right": pictures(height=4, width=4, channels=1),
        "name": "kept",
        "last": np.float32(2.5),
    }


def prepared(batch: Any, cast: ImageCast, keys: RowKeys | None = None) -> tuple[TakenApart, CastPlan]:
    parts = with_cast(take_apart(batch, "cpu", keeps_objects=True), cast, keys)
    assert parts.layout.cast is not None
    return parts, parts.layout.cast


def taken_out(batch: Any, cast: ImageCast, keys: RowKeys | None = None) -> Any:
    """Take a batch through a slot and out of it, over poison on both sides."""
    parts, plan = prepared(batch, cast, keys)
    slot, own = aligned_bytes(parts.layout.nbytes), aligned_bytes(plan.target.nbytes)
    slot[:], own[:] = 0xA5, 0xA5
    fill(views(slot, parts.layout), parts.sources)
    cast_batch(own, slot, plan)
    return plan.target.rebuild(views(own, plan.target), parts.kept)


def exact(images: NDArray[np.uint8], cast: ImageCast) -> NDArray[np.float64]:
    """Return what a cast is by its definition, in float64, (rows, height, width, channels)."""
    values: NDArray[np.float64] = (images * cast.scale - np.array(cast.mean)) / np.array(cast.std)
    return values


def test_a_batch_of_everything_comes_out_cast_where_it_is_images_and_as_it_was_elsewhere() -> None:
    batch, cast = batch_with_everything(), ImageCast(mean=0.5, std=0.25)
    found = taken_out(batch, cast)
    assert list(found) == list(batch)
    for name in ("number", "none", "last"):
        np.testing.assert_array_equal(found[name], batch[name])
        assert found[name].dtype == np.asarray(batch[name]).dtype
    assert [row.tolist() for row in found["words"]] == [row.tolist() for row in batch["words"]]
    assert found["name"] == "kept"
    for name in ("left", "right"):
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], exact(batch[name], cast).transpose(0, 3, 1, 2), rtol=0, atol=1e-6)


def test_what_was_laid_out_before_stays_where_it_was_and_the_cast_adds_arrays_behind_it() -> None:
    parts, plan = prepared(batch_with_everything(), ImageCast())
    plain = take_apart(batch_with_everything(), "cpu", keeps_objects=True)
    count = len(plain.layout.arrays)
    assert parts.layout.arrays[:count] == plain.layout.arrays
    assert len(parts.layout.arrays) == len(parts.sources) == count + 4
    assert all(array.offset % ALIGNMENT == 0 for array in (*parts.layout.arrays, *plan.target.arrays))
    assert parts.layout.outside is plan.target
    assert plain.layout.outside is plain.layout


def test_arrays_between_images_are_copied_in_one_piece_each_side() -> None:
    _, plan = prepared(batch_with_everything(), ImageCast())
    assert len(plan.casts) == 2
    assert len(plan.copies) == 3  # before left, between left and right, behind right


def test_every_byte_of_the_result_is_written_by_one_copy_or_cast_only() -> None:
    _, plan = prepared(batch_with_everything(), ImageCast(dtype="float16"))
    spans = [(copy.target, copy.target + copy.nbytes) for copy in plan.copies]
    spans += [(cast.target.offset, cast.target.offset + cast.target.nbytes) for cast in plan.casts]
    spans.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert spans[-1][1] <= plan.target.nbytes


@pytest.mark.parametrize("number", range(7))
def test_every_array_can_be_taken_out_alone(number: int) -> None:
    batch = batch_with_everything()
    parts, plan = prepared(batch, ImageCast(dtype="float16"))
    slot, own = aligned_bytes(parts.layout.nbytes), aligned_bytes(plan.target.nbytes)
    fill(views(slot, parts.layout), parts.sources)
    cast_batch(own, slot, plan)
    alone = plan.alone(number)
    block = aligned_bytes(alone.target.nbytes)
    cast_batch(block, slot, alone)
    (found,) = views(block, alone.target)
    np.testing.assert_array_equal(found, views(own, plan.target)[number])


def test_images_of_no_rows_and_of_no_pixels_come_out_empty() -> None:
    assert taken_out(np.zeros((0, 6, 7, 3), np.uint8), CAST).shape == (0, 3, 6, 7)
    assert taken_out(np.zeros((2, 0, 7, 3), np.uint8), CAST).shape == (2, 3, 0, 7)


def test_a_batch_without_images_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ImageCastError, match="no leaf of the batch is a dense uint8 array"):
        prepared({"x": np.zeros((3, 3))}, CAST)


# -- cutting and mirroring


def test_a_crop_in_the_middle_leaves_as_much_on_both_sides() -> None:
    images = pictures(height=9, width=8)
    found = taken_out(images, ImageCast(crop=(5, 4), scale=1.0, layout="NHWC"))
    np.testing.assert_array_equal(found, images[:, 2:7, 2:6])


def test_flipping_mirrors_every_row_left_and_right() -> None:
    images = pictures()
    np.testing.assert_array_equal(taken_out(images, ImageCast(flip=True, scale=1.0, layout="NHWC")), images[:, :, ::-1])


def test_what_is_drawn_is_what_is_done() -> None:
    images, keys = pictures(rows=40, height=9, width=11), keys_of(40)
    cast = ImageCast(flip="random", crop=(5, 6), crop_at="random", scale=1.0, layout="NHWC")
    drawn = places(cast, keys, 40, (4, 5))
    found = taken_out(images, cast, keys)
    for row, (top, left, mirrored) in enumerate(drawn.tolist()):
        wanted = images[row, top : top + 5, left : left + 6]
        np.testing.assert_array_equal(found[row], wanted[:, ::-1] if mirrored else wanted)


def test_draws_use_the_whole_room_evenly_and_independently() -> None:
    cast = ImageCast(flip="random", crop=(1, 1), crop_at="random")
    drawn = places(cast, keys_of(40_000), 40_000, (3, 6))
    for column, bound in ((TOP, 4), (LEFT, 7), (MIRRORED, 2)):
        counts = np.bincount(drawn[:, column], minlength=bound)
        assert len(counts) == bound
        expected = 40_000 / bound
        assert float(((counts - expected) ** 2 / expected).sum()) < 35  # of chi-squared with up to 6 degrees of freedom
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.03


def test_keys_that_follow_each_other_draw_as_if_they_did_not() -> None:
    flips = places(ImageCast(flip="random"), np.arange(20_000, dtype=np.uint64), 20_000, (0, 0))[:, MIRRORED]
    assert abs(flips.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(flips[1:], flips[:-1])[0, 1]) < 0.03


def test_a_row_draws_by_its_key_and_not_by_its_place() -> None:
    cast, keys = ImageCast(flip="random", crop=(2, 2), crop_at="random"), keys_of(30)
    order = np.random.default_rng(1).permutation(30)
    np.testing.assert_array_equal(places(cast, keys[order], 30, (5, 5)), places(cast, keys, 30, (5, 5))[order])


def test_leaves_of_one_size_are_cut_and_mirrored_alike() -> None:
    image = pictures(rows=12)
    cast = ImageCast(flip="random", crop=(3, 3), crop_at="random", scale=1.0)
    found = taken_out({"image": image, "mask": image.copy()}, cast, keys_of(12))
    np.testing.assert_array_equal(found["image"], found["mask"])


def test_elements_that_were_never_batched_draw_something_else_for_each_of_their_rows() -> None:
    cast, key = ImageCast(flip="random"), keys_of(1)
    drawn = places(cast, key, 64, (0, 0))[:, MIRRORED]
    np.testing.assert_array_equal(drawn, places(cast, key, 64, (0, 0))[:, MIRRORED])
    assert 10 < drawn.sum() < 54


def test_the_draws_of_a_key_never_change() -> None:
    cast = ImageCast(flip="random", crop=(1, 1), crop_at="random")
    drawn = places(cast, np.arange(6, dtype=np.uint64), 6, (99, 49))
    assert drawn.tolist() == [[88, 21, 0], [74, 18, 0], [25, 44, 0], [81, 21, 0], [6, 39, 0], [41, 26, 1]]


# -- arithmetic


@given(
    rows=st.integers(1, 3),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.integers(1, 5),
    dtype=st.sampled_from(["float16", "float32"]),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_cast_is_its_definition_within_rounding(
    rows: int, height: int, width: int, channels: int, dtype: str, layout: str, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    images = chance.integers(0, 256, (rows, height, width, channels), np.uint8)
    cast = ImageCast(
        dtype=dtype,
        layout=layout,
        mean=chance.normal(size=channels).tolist(),
        std=chance.uniform(0.1, 9, channels).tolist(),
    )
    wanted = exact(images, cast)
    found = taken_out(images, cast).astype(np.float64)
    found = found.transpose(0, 2, 3, 1) if layout == "NCHW" else found
    gain, bias = cast.factors(channels).astype(np.float64)
    sizes = np.abs(images * gain) + np.abs(bias)
    in_float32 = sizes * 2.0**-22  # two factors, a product and a sum, each rounded once
    rounded_once_more = np.abs(wanted) * 2.0**-11 + 2.0**-25 if dtype == "float16" else 0.0
    assert (np.abs(found - wanted) <= in_float32 + rounded_once_more).all()


def test_casting_takes_no_more_memory_than_one_channel_of_an_image() -> None:
    images = pictures(rows=16, height=256, width=256)
    parts, plan = prepared(images, CAST)
    slot, own = aligned_bytes(parts.layout.nbytes), aligned_bytes(plan.target.nbytes)
    fill(views(slot, parts.layout), parts.sources)
    tracemalloc.start()
    try:
        cast_batch(own, slot, plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 256 * 256 * 8  # a channel's pixels as the numbers that NumPy looks up by
