from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.formats.features import Feature, FixedLen, FixedLenSequence, Ragged, VarLen, checked_features


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "rule"),
    [
        ((0,), np.int64, None, "at least 1, got (0,)"),
        ((-1,), np.int64, None, "at least 1, got (-1,)"),
        ((True,), np.int64, None, "at least 1"),
        ((1 << 20, 1 << 20), np.int64, None, "at most"),
        ((), np.complex128, None, "got <class 'numpy.complex128'>"),
        ((), object, None, "got <class 'object'>"),
        ((), None, None, "got None"),
        ((), "no such type", None, "got 'no such type'"),
        ((), np.int64, 1.5, "dtype int64, got 1.5"),
        ((), np.uint8, 256, "dtype uint8, got 256"),
        ((), np.int64, b"x", "dtype int64, got b'x'"),
        ((), np.float32, 1e300, "dtype float32, got 1e+300"),
        ((), np.bool_, 2, "dtype bool, got 2"),
        ((), bytes, "x", "dtype bytes, got 'x'"),
        ((), str, b"x", "dtype str, got b'x'"),
        ((2,), np.int64, [1, 2, 3], "shape (2,), got shape (3,)"),
        ((2, 2), np.int64, [1, 2], "shape (2, 2), got shape (2,)"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused_with_rule_and_value(
    shape: tuple[int, ...], dtype: Any, default: Any, rule: str
) -> None:
    with pytest.raises(PlanError) as caught:
        FixedLen(shape, dtype, default)
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    "feature",
    [
        FixedLen((2, 3), np.float32, np.ones((2, 3))),
        FixedLen((2,), bytes, [b"a", b""]),
        FixedLen((), np.int64, 7),
        VarLen(str),
        Ragged(np.int32),
        FixedLenSequence((4,), np.uint8),
    ],
)
def test_descriptions_are_hashable_and_survive_pickling(feature: Feature) -> None:
    again = pickle.loads(pickle.dumps(feature))
    assert again == feature
    assert hash(again) == hash(feature)


def test_a_scalar_default_fills_the_shape() -> None:
    assert FixedLen((2, 2), np.float64, 1).default_array().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert FixedLen((2,), bytes, b"\x00").default_array().tolist() == [b"\x00", b"\x00"]


def test_specs_tell_shape_and_dtype_of_an_element() -> None:
    assert FixedLen((2,), np.int32).spec == ((2,), np.dtype(np.int32), False)
    assert VarLen(bytes).spec == ((None,), np.dtype(object), True)
    assert FixedLenSequence((3,), bool).spec == ((None, 3), np.dtype(np.bool_), True)


@pytest.mark.parametrize("features", [{}, {1: VarLen(bytes)}, {"a": np.int64}])
def test_a_mapping_that_is_no_mapping_of_features_is_refused(features: Any) -> None:
    with pytest.raises(PlanError):
        checked_features(features)
