"""Draw where a plan begins: memory, Python objects, and local files of every format."""

from __future__ import annotations

from random import Random

from metamorphic.drawing import Drawn, Kind, Step, arguments, chance, one_of, seed_or_none, weighted


def _rows(random: Random) -> int:
    return random.choice([0, 1, 2, 3, 5, 7, 9, 12, 14, 17, 20, 26])


def numbers(random: Random) -> Drawn:
    """Draw a range of int64."""
    first, rows, step = random.randrange(6), _rows(random), one_of(random, 1, 1, 2)
    return Drawn(Step(f"Dataset.range({first}, {first + rows * step}, {step})"), "number", rows)


def _small_numbers(random: Random) -> Drawn:
    rows = _rows(random)
    return Drawn(Step(f'Dataset.range({rows}, dtype="int32")'), "row", rows)


_SOME_MISSING = 'None if n % 4 == 1 else "text %d" % n for n in range({0})'


def _slices(random: Random) -> Drawn:
    rows = _rows(random)
    texts: list[tuple[str, Kind]] = [
        ("np.arange({0})", "number"),
        ("(np.arange({0}), np.arange({0}, dtype=np.float32)[:, None])", "row"),
        ('{{"n": np.arange({0}), "x": np.stack([np.arange({0}), -np.arange({0})], axis=1)}}', "row"),
        ('asd.BytesArray.from_list([b"bytes %d" % n for n in range({0})])', "text"),
        (f'{{{{"t": asd.TextArray.from_list([{_SOME_MISSING}]), "n": np.arange({{0}})}}}}', "example"),
        ('["text %d" % n for n in range({0})]', "text"),
    ]
    text, kind = one_of(random, *(texts if rows else texts[:-1]))
    return Drawn(Step(f"Dataset.from_tensor_slices({text.format(rows)})"), kind, rows)


def _frame(random: Random) -> Drawn:
    columns = one_of(random, "", ", ['name', 'n']")
    rows = _rows(random)
    return Drawn(Step(f"Dataset.from_dataframe(frame({rows}){columns})"), "example" if rows else "other", rows)


def _list(random: Random) -> Drawn:
    rows = 1 + _rows(random)
    elements: tuple[tuple[str, Kind], ...] = (
        ("n", "number"),
        ('{"n": n, "t": "text %d" % n}', "example"),
        ("(n, np.full(2, n))", "row"),
    )
    element, kind = one_of(random, *elements)
    return Drawn(Step(f"Dataset.from_list([{element} for n in range({rows})])"), kind, rows)


def _indexed(random: Random) -> Drawn:
    rows, parts = _rows(random), random.randint(1, 3)
    text = f"Dataset.range({rows}).index_flat_map(Parts({parts}), Divided({parts}), {rows * parts})"
    return Drawn(Step(text), "number", rows * parts)


def _endless(random: Random) -> Drawn:
    again = chance(random, 0.5)
    call = one_of(
        random, f"counter({random.randrange(9)}, 3)", "random(5)", f"random(rerandomize_each_iteration={again})"
    )
    rows = _rows(random)
    return Drawn(Step(f"Dataset.{call}"), "number", rows, free=False).then(f"take({rows})")


def _tensors(random: Random) -> Drawn:
    times = random.randrange(9)
    return Drawn(Step(f"Dataset.from_tensors((1, np.arange(2))).repeat({times})"), "row", times)


def _generator(random: Random) -> Drawn:
    name, rows = one_of(random, "counted", "counted_async", "generated_rows"), _rows(random)
    kind: Kind = "row" if name == "generated_rows" else "number"
    return Drawn(Step(f"Dataset.from_generator({name}, args=(100, {rows}))"), kind, rows)


def _iterable(random: Random) -> Drawn:
    rows = _rows(random)
    return Drawn(Step(f"Dataset.from_iterable(list(range(200, {200 + rows})))"), "number", rows)


def _names(random: Random) -> Drawn:
    text = f"Dataset.list_files({arguments('pattern(' + repr('.txt') + ')', seed=seed_or_none(random))})"
    if chance(random, 0.4):
        return Drawn(Step(text), "text", 4)
    if chance(random, 0.5):
        return Drawn(Step(f"Dataset.from_text({text}.shuffle(3), {_reading(random)})"), "text", 20)
    cycle, block = random.randint(1, 3), random.randint(1, 3)
    function = one_of(random, "lines_of", "chosen_lines_of", "drawn_lines_of")
    text += f".interleave({function}, cycle_length={cycle}, block_length={block})"
    return Drawn(Step(text), "text", 20)


def _files(random: Random) -> Drawn:
    call, kind = one_of(
        random,
        ('from_tfrecord(pattern(".tfrecord")', "text"),
        ('from_tfrecord(pattern(".tfrecord.gz")', "text"),
        ('from_format(pattern(".tfrecord"), FORMAT', "text"),
        ('from_text(pattern(".txt")', "text"),
        ('from_text(pattern(".txt.gz"), encoding=None', "text"),
        (f'from_text(pattern("{one_of(random, ".txt.bz2", ".txt.xz")}")', "text"),
        ('from_tfrecord(pattern(".tfrecord.lz4")', "text"),
        ('from_tfrecord(pattern(".tfrecord.sz")', "text"),
        ('from_text(pattern(".txt.z"), compression="zlib"', "text"),
        ('from_fixed_length(pattern(".bin"), 8, header_nbytes=4', "text"),
        ('from_webdataset(pattern(".tar")', "example"),
        ('from_webdataset(pattern(".tar.gz")', "other"),
    )
    ordered = not chance(random, 0.1)
    more = _reading(random) + ("" if ordered else ", ordered=False")
    return Drawn(Step(f"Dataset.{call}, {more})"), kind, 20, ordered=ordered)


def _damaged_files(random: Random) -> Drawn:
    call, kind = one_of(
        random,
        ('from_tfrecord(pattern(".damaged")', "text"),
        ('from_tfrecord(pattern(".damaged.gz")', "text"),
        ('from_tfrecord(pattern(".damaged.xz")', "text"),
        ('from_tfrecord(pattern(".damaged.sz")', "text"),
        ('from_webdataset(pattern(".badtar")', "other"),
        ('from_webdataset(pattern(".badtar.gz")', "other"),
        ('from_text(pattern(".badtext")', "text"),
        ('from_text(pattern(".badtext.gz")', "text"),
        ('from_text(pattern(".badtext.gz"), verify=True', "text"),
        ('from_fixed_length(pattern(".badbin"), 8', "text"),
        ('from_files(pattern(".damaged.gz"), compression="gzip"', "text"),
    )
    if chance(random, 0.2):
        cycle = random.randint(1, 3)
        text = f"Dataset.list_files(pattern('.badtext')).interleave(left_of, cycle_length={cycle})"
        return Drawn(Step(text), "text", 20)
    policy = one_of(random, '"skip"', '"skip"', "asd.Skip(max_count=1000)", 'asd.Retry(1, backoff_s=0.0, then="skip")')
    ordered = "" if "from_files" in call or not chance(random, 0.1) else ", ordered=False"
    how = arguments(seed=seed_or_none(random), shuffle_shards=True) if "from_files" in call else _reading(random)
    return Drawn(Step(f"Dataset.{call}, on_error={policy}, {how}{ordered})"), kind, 20, ordered=not ordered)


def _examples(random: Random) -> Drawn:
    if chance(random, 0.3):
        text = f'Dataset.from_tfrecord(pattern(".steps"), {_reading(random)})'
        text += ".parse_sequence_example({'n': FEATURES['n']}, SEQUENCE_FEATURES)"
        return Drawn(Step(text), "other", 20)
    between = one_of(random, "", "", ".prefetch(2)")  # behind its source it is no stage of its own
    text = f'Dataset.from_tfrecord(pattern(".example"), {_reading(random)}){between}'
    policy = ', on_error="skip"' if chance(random, 0.2) else ""
    return Drawn(Step(f"{text}.parse_example(FEATURES{policy})"), "example", 20)


def _tables(random: Random) -> Drawn:
    rows = random.choice(["", '["n", "text"]', '["text"]'])
    filters = one_of(
        random, "", 'filters=[("n", ">", 4)]', 'filters=[("n", "in", [1, 2, 3, 11, 12]), ("text", "!=", "")]'
    )
    cycle, block = random.randint(1, 3), random.randint(1, 3)
    shuffled = chance(random, 0.4)
    more = arguments(
        cycle_length=cycle,
        block_length=block,
        shuffle_shards=shuffled or None,
        seed=seed_or_none(random) if shuffled else None,
    )
    kind = one_of(random, "parquet", "arrow")
    if chance(random, 0.3):
        function = one_of(random, "table_of", "chosen_rows_of")
        text = f"Dataset.list_files(pattern('.{kind}')).interleave({function}, cycle_length={cycle})"
        return Drawn(Step(text), "other", 20)
    filters = filters if kind == "parquet" else ""
    mixed, schema = ("mixed-", 'schema={"n": np.int64}') if chance(random, 0.3) else ("", "")
    parts = (f'pattern(".{mixed}{kind}")', f"columns={rows or None}", filters, schema, more)
    call = ", ".join(part for part in parts if part)
    return Drawn(Step(f"Dataset.from_{kind}({call})"), "example" if rows else "other", 20)


def _lake(random: Random) -> Drawn:
    """Draw a version of a Delta or Iceberg table."""
    shuffled, version = chance(random, 0.4), random.randint(0, 1)
    more = arguments(
        cycle_length=random.randint(1, 3),
        block_length=random.randint(1, 3),
        shuffle_shards=shuffled or None,
        seed=seed_or_none(random) if shuffled else None,
    )
    filters = one_of(random, "", 'filters=[("n", ">", 4)], ')
    columns = one_of(random, "", 'columns=["n"], ')
    if chance(random, 0.6):
        filters = one_of(random, filters, 'filters=[("part", "=", 0)], ')
        return Drawn(Step(f'Dataset.from_delta(place("delta"), {version}, {columns}{filters}{more})'), "other", 20)
    text = f'Dataset.from_iceberg("db.rows", snapshot({version}), catalog=catalog(), {columns}{filters}{more})'
    return Drawn(Step(text), "other", 20)


def _arrays(random: Random) -> Drawn:
    shuffled = chance(random, 0.4)
    more = arguments(
        cycle_length=random.randint(1, 3),
        shuffle_shards=shuffled or None,
        seed=seed_or_none(random) if shuffled else None,
    )
    if chance(random, 0.3):
        return Drawn(Step(f'Dataset.from_array_record(pattern(".array_record"), {more})'), "text", 20)
    if chance(random, 0.3):
        stride = arguments(stride=one_of(random, None, 3, 6))
        step = ", ".join(part for part in ('pattern(".tokens")', "4", stride, more) if part)
        return Drawn(Step(f"Dataset.from_tokens({step})"), "row", 20)
    if chance(random, 0.5):
        return Drawn(Step(f'Dataset.from_npy(pattern(".npy"), {more})'), "row", 20)
    fields = one_of(random, "", 'fields=["n", "name"], ')
    call = one_of(random, 'from_npy(pattern(".npz")', 'from_hdf5(pattern(".h5")')
    return Drawn(Step(f"Dataset.{call}, {fields}{more})"), "other", 20)


def _csv(random: Random) -> Drawn:
    """Draw CSV files: with a schema or without one, in full or in part, whole or damaged."""
    damaged, declared = chance(random, 0.3), chance(random, 0.5)
    suffix = ".badcsv" if damaged else one_of(random, ".csv", ".csv.gz")
    select = one_of(random, None, None, ["name", "n"])
    more = arguments(select=select, on_error="skip" if damaged or chance(random, 0.2) else None)
    schema = ", CSV_SCHEMA" if declared or damaged else ""
    text = f"Dataset.from_csv(pattern({suffix!r}){schema}, {', '.join(filter(None, (more, _reading(random))))})"
    return Drawn(Step(text), "other", 20)


def _json(random: Random) -> Drawn:
    """Draw JSON lines: with a schema or without one, whole or damaged, or opened as files of any format."""
    if chance(random, 0.2):
        more = arguments(shuffle_shards=chance(random, 0.5), seed=seed_or_none(random))
        return Drawn(Step(f"Dataset.open_any(pattern('.jsonl'), {more})"), "other", 20)
    damaged = chance(random, 0.3)
    suffix = ".badjsonl" if damaged else one_of(random, ".jsonl", ".jsonl.gz")
    schema = one_of(random, ", JSON_SCHEMA", "")
    more = arguments(on_error="skip" if damaged or chance(random, 0.2) else None)
    text = f"Dataset.from_jsonl(pattern({suffix!r}){schema}, {', '.join(filter(None, (more, _reading(random))))})"
    return Drawn(Step(text), "other", 20)


def _whole_files(random: Random) -> Drawn:
    shuffled = chance(random, 0.5)
    more = arguments(shuffle_shards=shuffled, seed=seed_or_none(random))
    return Drawn(Step(f'Dataset.from_files(pattern(".bin"), {more})'), "text", 4)


def _image_folder(random: Random) -> Drawn:
    classes = one_of(random, None, ["class 2", "class 0"])
    more = arguments(classes=classes, shuffle_shards=chance(random, 0.5), seed=seed_or_none(random))
    return Drawn(Step(f'Dataset.from_image_folder(place("images"), {more})'), "other", 20)


def _mds(random: Random) -> Drawn:
    columns = one_of(random, None, None, ["text", "n"])
    more = arguments(columns=columns, on_error="skip" if chance(random, 0.2) else None)
    call = ", ".join(part for part in ('place("mds")', more, _reading(random)) if part)
    return Drawn(Step(f"Dataset.from_mds({call})"), "other", 20)


def _sql(random: Random) -> Drawn:
    where, params = one_of(random, ("", ""), (" WHERE n > ?", ", params=(3,)"))
    key = one_of(random, "n", "name")
    text = f'Dataset.from_sql("SELECT * FROM rows{where}", database, key="{key}"{params})'
    return Drawn(Step(text), "other", 15 if params else 20)


def _hub(random: Random) -> Drawn:
    shuffled = chance(random, 0.4)
    more = arguments(
        revision=one_of(random, None, "csv"),
        cycle_length=random.randint(1, 3),
        shuffle_shards=shuffled or None,
        seed=seed_or_none(random) if shuffled else None,
    )
    return Drawn(Step(f'Dataset.from_hub("org/rows", {more}, storage_options=hub())'), "other", 20)


def _tfds(random: Random) -> Drawn:
    split = one_of(random, "train", "train", "train[3:]", "train[20%:80%]", "test+train[:9]")
    features = one_of(random, None, None, ["text", "n"])
    more = arguments(split=split, features=features, on_error="skip" if chance(random, 0.2) else None)
    call = ", ".join(part for part in ('place("tfds")', more, _reading(random)) if part)
    return Drawn(Step(f"Dataset.from_tfds({call})"), "other", 20)


def _reading(random: Random) -> str:
    shuffled = chance(random, 0.4)
    more = arguments(
        cycle_length=random.randint(1, 4),
        block_length=random.randint(1, 3),
        shuffle_shards=shuffled or None,
        seed=seed_or_none(random) if shuffled else None,
    )
    return f"{more}, **READ"


_SOURCES = [
    (5, numbers),
    (0.5, _small_numbers),
    (1.5, _slices),
    (0.5, _list),
    (0.5, _endless),
    (0.4, _indexed),
    (0.5, _tensors),
    (0.5, _frame),
    (1, _generator),
    (0.7, _iterable),
    (0.7, _names),
    (2, _files),
    (0.8, _damaged_files),
    (1, _examples),
    (1, _csv),
    (1, _json),
    (0.4, _whole_files),
    (0.4, _image_folder),
    (0.5, _mds),
    (0.5, _tfds),
    (0.2, _hub),
    (0.6, _tables),
    (0.4, _arrays),
    (0.4, _lake),
    (0.4, _sql),
]


def source(random: Random) -> Drawn:
    """Draw any source."""
    drawn: Drawn = weighted(random, _SOURCES)(random)
    return drawn
