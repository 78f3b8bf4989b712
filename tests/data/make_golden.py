"""Write the golden files: records as TensorFlow writes them, and what TensorFlow parses from them.

Only needed to make them anew, in an environment of its own with ``pip install tensorflow-cpu``::

    python tests/data/make_golden.py

``golden/*.tfrecord*`` hold the records. ``golden/expected.json`` holds, per file, the feature descriptions
as ``[class, shape, dtype, default]`` and what TensorFlow made of each record. Values are written without
loss: integers as numbers, float32 as the hex of its bits, bytes as hex. ``rejected`` lists records, in
hex, that TensorFlow refuses to parse.
"""

from __future__ import annotations

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden"

KINDS: dict[str, list[Any]] = {
    "label": ["FixedLen", [], "int64", None],
    "weight": ["FixedLen", [], "float32", 0.5],
    "image": ["FixedLen", [], "bytes", "none"],
    "box": ["FixedLen", [2, 2], "float32", None],
    "pair": ["FixedLen", [2], "bytes", ["a", ""]],
    "count": ["FixedLen", [3], "int64", [-1, 0, 1]],
    "ids": ["VarLen", None, "int64", None],
    "scores": ["VarLen", None, "float32", None],
    "words": ["VarLen", None, "bytes", None],
    "path": ["FixedLenSequence", [2], "int64", True],
}
LISTS: dict[str, list[Any]] = {
    "i": ["VarLen", None, "int64", None],
    "f": ["VarLen", None, "float32", None],
    "b": ["VarLen", None, "bytes", None],
}
CONTEXT: dict[str, list[Any]] = {"id": ["FixedLen", [], "int64", None], "tags": ["VarLen", None, "bytes", None]}
STEPS: dict[str, list[Any]] = {
    "frame": ["FixedLenSequence", [], "bytes", False],
    "pose": ["FixedLenSequence", [3], "float32", True],
    "clicks": ["VarLen", None, "int64", None],
    "notes": ["VarLen", None, "bytes", None],
}


# -- the records -------------------------------------------------------------------------------


def feature(tf: Any, value: Any) -> Any:
    """Return the tf.train.Feature of a list; None gives one without a kind."""
    if value is None:
        return tf.train.Feature()
    dtype, values = value
    if dtype == "bytes":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if dtype == "float32":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def features(tf: Any, values: dict[str, Any]) -> Any:
    return tf.train.Features(feature={name: feature(tf, value) for name, value in values.items()})


def kinds_records(tf: Any) -> list[bytes]:
    """Return Examples of every feature kind, with features empty, missing and without a kind."""
    rng = np.random.default_rng(35)
    records = []
    for i in range(40):
        values: dict[str, Any] = {
            "label": ("int64", [int(rng.integers(-(2**62), 2**62))]),
            "weight": ("float32", [float(rng.standard_normal())]),
            "image": ("bytes", [rng.bytes(int(rng.integers(0, 300)))]),
            "box": ("float32", rng.standard_normal(4).tolist()),
            "pair": ("bytes", [b"\x00" * (i % 3), b"right\x00"]),
            "count": ("int64", rng.integers(-200, 200, 3).tolist()),
            "ids": ("int64", rng.integers(-(2**40), 2**40, i % 7).tolist()),
            "scores": ("float32", rng.standard_normal((5 * i) % 11).tolist()),
            "words": ("bytes", [b"w" * k for k in range(i % 4)]),
            "path": ("int64", list(range(2 * (i % 5)))),
            "nobody asked": ("float32", [1.0] * i),
        }
        for name in ("weight", "image", "pair", "count", "ids", "scores", "words", "path"):
            chance = rng.random()
            if chance < 0.15:
                del values[name]
            elif chance < 0.25:
                values[name] = None
        records.append(tf.train.Example(features=features(tf, values)).SerializeToString(deterministic=True))
    return records


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def entry(name: bytes, value: bytes) -> bytes:
    return delimited(1, delimited(1, name) + delimited(2, value))


def lists_records() -> list[bytes]:
    """Return hand-made Examples: extreme values, and every way to write them that TensorFlow parses."""
    ints = [0, 1, -1, 127, 128, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**53 + 1]
    bits = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001, 1, 0x7F7FFFFF, 0x3DCCCCCD]
    packed_i = delimited(3, delimited(1, b"".join(map(varint, ints))))
    packed_f = delimited(2, delimited(1, struct.pack(f"<{len(bits)}I", *bits)))
    single_i = delimited(3, b"".join(b"\x08" + varint(value) for value in ints))
    single_f = delimited(2, b"".join(b"\x0d" + struct.pack("<I", value) for value in bits))
    some_b = delimited(1, delimited(1, b"") + delimited(1, b"\x00\xff") + delimited(1, b"x" * 200))
    unknown = (
        varint(15 << 3) + varint(-5)
        + varint(16 << 3 | 1) + bytes(range(8))
        + delimited(17, b"unknown")
        + varint(18 << 3 | 5) + b"abcd"
        + varint((1 << 29) - 1 << 3) + b"\x00"
    )  # fmt: skip
    packed = delimited(1, entry(b"i", packed_i) + entry(b"f", packed_f) + entry(b"b", some_b))
    single = delimited(1, entry(b"b", some_b) + entry(b"f", single_f) + entry(b"i", single_i))
    value_first = delimited(1, delimited(1, delimited(2, packed_i) + delimited(1, b"i")))
    return [
        b"",
        delimited(1, b""),
        packed,
        single,
        unknown + packed + unknown,
        value_first,
        delimited(1, entry(b"i", delimited(3, b"")) + entry(b"f", delimited(2, b"")) + entry(b"b", delimited(1, b""))),
        delimited(1, entry(b"i", b"") + entry(b"f", b"")),
        delimited(1, entry(b"i", delimited(3, delimited(1, b"")))),
        delimited(1, entry(b"i", packed_i) + entry(b"i", delimited(3, b"\x08\x07"))),
        packed + delimited(1, entry(b"f", delimited(2, b"\x0d\x00\x00\x80\x3f"))),
        delimited(1, entry(b"i", packed_i + unknown)),
        delimited(1, entry(b"", packed_i) + entry(b"ii", packed_f) + entry(b"I", some_b)),
        b"\x8a\x00" + b"\x82\x80\x00" + b"\x0a\x00",
    ]


def sequence_records(tf: Any) -> list[bytes]:
    """Return SequenceExamples with steps of every kind; lists empty and missing."""
    records = []
    for i in range(12):
        steps: dict[str, list[Any]] = {
            "frame": [("bytes", [b"f" * (i * k)]) for k in range(i % 5)],
            "pose": [("float32", [i, k, 0.1]) for k in range(i % 3)],
            "clicks": [("int64", list(range(-k, k * i % 4))) for k in range(i % 4)],
            "notes": [("bytes", [b"n"] * k) for k in range(i % 6)],
            "nobody asked": [None],
        }
        if i % 3 == 0:
            del steps["pose"], steps["notes"]
        context = features(tf, {"id": ("int64", [-i]), "tags": ("bytes", [b"t", b""][: i % 3])})
        lists = {name: tf.train.FeatureList(feature=[feature(tf, v) for v in values]) for name, values in steps.items()}
        whole = tf.train.SequenceExample(context=context, feature_lists=tf.train.FeatureLists(feature_list=lists))
        records.append(whole.SerializeToString(deterministic=True))
    return records


def rejected_candidates() -> list[tuple[list[Any], bytes]]:
    """Return feature descriptions with records that must not parse.

    TensorFlow lets pass, and loses the values of, a list whose length is beyond its end, and a packed
    float list of an odd length; those are not here.
    """
    scalar: list[Any] = ["FixedLen", [], "int64", None]
    filled: list[Any] = ["FixedLen", [], "int64", 5]
    variable: list[Any] = ["VarLen", None, "int64", None]
    one, two = delimited(3, b"\x08\x01"), delimited(3, b"\x08\x01\x08\x02")
    good = delimited(1, entry(b"x", one))
    return [
        (scalar, b""),
        (scalar, delimited(1, entry(b"x", b""))),
        (scalar, delimited(1, entry(b"x", two))),
        (scalar, delimited(1, entry(b"x", delimited(3, b"")))),
        (filled, delimited(1, entry(b"x", delimited(3, b"")))),
        (filled, delimited(1, entry(b"x", two))),
        (scalar, delimited(1, entry(b"x", delimited(2, b"\x0d\x00\x00\x80\x3f")))),
        (filled, delimited(1, entry(b"x", delimited(1, b"")))),
        (variable, delimited(1, entry(b"x", delimited(1, delimited(1, b"text"))))),
        *((variable, good[:stop]) for stop in (1, *range(3, len(good)))),
        (variable, good + b"\x0a"),
        (variable, good + b"\x7b"),
        (variable, good + b"\x7c"),
        (variable, good + b"\x7f\x00"),
        (variable, good + b"\x78" + b"\xff" * 10 + b"\x01"),
        (variable, delimited(1, entry(b"x", delimited(3, delimited(1, b"\x80"))))),
    ]


# -- what TensorFlow makes of them -------------------------------------------------------------


def description(tf: Any, given: list[Any]) -> Any:
    name, shape, dtype, extra = given
    kind = tf.string if dtype == "bytes" else tf.dtypes.as_dtype(dtype)
    if name == "VarLen":
        return tf.io.VarLenFeature(kind)
    if name == "FixedLenSequence":
        return tf.io.FixedLenSequenceFeature(shape, kind, allow_missing=extra)
    return tf.io.FixedLenFeature(shape, kind, default_value=extra)


def written(array: Any) -> dict[str, Any]:
    """Return an array as JSON without loss."""
    array = np.array(array, object) if isinstance(array, bytes) else np.asarray(array)
    if array.dtype == np.float32:
        data: Any = array.astype("<f4").tobytes().hex()
    elif array.dtype == object:
        data = [value.hex() for value in array.ravel().tolist()]
    else:
        data = array.astype(np.int64).ravel().tolist()
    return {"shape": list(array.shape), "data": data}


def parsed_features(tf: Any, record: bytes, given: dict[str, list[Any]]) -> dict[str, Any]:
    parsed = tf.io.parse_single_example(record, {name: description(tf, one) for name, one in given.items()})
    return {
        name: written(parsed[name].values.numpy() if one[0] == "VarLen" else parsed[name].numpy())
        for name, one in given.items()
    }


def parsed_sequence(tf: Any, record: bytes) -> dict[str, Any]:
    context, steps = tf.io.parse_single_sequence_example(
        record,
        {name: description(tf, one) for name, one in CONTEXT.items()},
        {name: description(tf, one) for name, one in STEPS.items()},
    )
    found: dict[str, Any] = {"id": written(context["id"].numpy()), "tags": written(context["tags"].values.numpy())}
    for name, one in STEPS.items():
        value = steps[name]
        if one[0] != "VarLen":
            found[name] = written(value.numpy())
            continue
        rows = np.asarray(value.indices.numpy())[:, 0]
        found[name] = written(value.values.numpy())
        found[name]["lengths"] = np.bincount(rows, minlength=int(value.dense_shape[0])).tolist()
    return found


def refuses(tf: Any, given: list[Any], record: bytes) -> bool:
    try:
        tf.io.parse_single_example(record, {"x": description(tf, given)})
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # the message quotes the record, undecoded
        return True
    return False


def main() -> None:
    tf: Any = importlib.import_module("tensorflow")
    GOLDEN.mkdir(exist_ok=True)
    kinds, lists, sequences = kinds_records(tf), lists_records(), sequence_records(tf)
    for name, records in (("kinds", kinds), ("lists", lists), ("sequences", sequences)):
        for suffix, compression in (("", ""), (".gz", "GZIP"), (".zlib", "ZLIB")):
            with tf.io.TFRecordWriter(str(GOLDEN / f"{name}.tfrecord{suffix}"), compression) as writer:
                for record in records:
                    writer.write(record)
    expected = {
        "tensorflow": tf.__version__,
        "kinds": {"features": KINDS, "rows": [parsed_features(tf, record, KINDS) for record in kinds]},
        "lists": {"features": LISTS, "rows": [parsed_features(tf, record, LISTS) for record in lists]},
        "sequences": {
            "context": CONTEXT,
            "sequences": STEPS,
            "rows": [parsed_sequence(tf, record) for record in sequences],
        },
        "rejected": [[one, record.hex()] for one, record in rejected_candidates() if refuses(tf, one, record)],
    }
    skipped = [record.hex() for one, record in rejected_candidates() if not refuses(tf, one, record)]
    if skipped:
        raise SystemExit(f"TensorFlow parses these after all: {skipped}")
    (GOLDEN / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
