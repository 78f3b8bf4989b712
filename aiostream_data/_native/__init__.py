"""Native kernels.

Each native kernel has a pure-Python version. This version is the kernel's fallback and the reference in tests.

``HAVE_NATIVE`` is True if this installation uses the native kernels.
"""

from __future__ import annotations

HAVE_NATIVE = True

try:
    from aiostream_data._native.body_receiver import NativeBodyReceiver
except ImportError:
    HAVE_NATIVE = False
    NativeBodyReceiver = None  # type: ignore[assignment,misc]

try:
    from aiostream_data._native.exchange import NativeExchange, ordinary_head
except ImportError:  # the event loop sends all requests, and the strict parser parses all heads
    HAVE_NATIVE = False
    NativeExchange = None  # type: ignore[assignment,misc]
    from aiostream_data._native.exchange_py import ordinary_head

try:
    from aiostream_data._native.row_bytes import (
        BytesMemory,
        BytesPool,
        byte_objects,
        byte_rows,
        byte_rows_many,
        first_invalid_utf8,
        str_objects,
        str_rows,
    )
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.row_bytes_py import (
        BytesMemory,
        BytesPool,
        byte_objects,
        byte_rows,
        byte_rows_many,
        first_invalid_utf8,
        str_objects,
        str_rows,
    )

try:
    from aiostream_data._native.arrow_c import (
        ImportedArray,
        ImportedStream,
        export_array,
        export_schema,
        export_stream,
        import_array,
        import_schema,
    )
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.arrow_c_py import (
        ImportedArray,
        ImportedStream,
        export_array,
        export_schema,
        export_stream,
        import_array,
        import_schema,
    )

try:
    from aiostream_data._native.csv_rows import find_csv_records, parse_csv, reorder_csv, scan_csv, unescape_csv
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.csv_rows_py import find_csv_records, parse_csv, reorder_csv, scan_csv, unescape_csv

try:
    from aiostream_data._native.draws import words_below
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.draws_py import words_below

try:
    from aiostream_data._native.elements import dict_columns, dicts_of, pull_elements, tuple_columns
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.elements_py import dict_columns, dicts_of, pull_elements, tuple_columns

try:
    from aiostream_data._native.example import parse_examples
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.example_py import parse_examples

try:
    from aiostream_data._native.framing import crc32c, find_lines, frame_tfrecords, hardware_crc, masked_crc32c
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.framing_py import crc32c, find_lines, frame_tfrecords, hardware_crc, masked_crc32c

try:
    from aiostream_data._native.gather import (
        are_packed,
        compact,
        compact_many,
        copy_arrays,
        exchange_rows,
        exchange_spans,
        length_range,
        take_rows,
        take_rows_many,
        total_length,
    )
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.gather_py import (
        are_packed,
        compact,
        compact_many,
        copy_arrays,
        exchange_rows,
        exchange_spans,
        length_range,
        take_rows,
        take_rows_many,
        total_length,
    )

try:
    from aiostream_data._native.hashing import hash_ids, hash_rows, hash_run
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.hashing_py import hash_ids, hash_rows, hash_run

try:
    from aiostream_data._native.json_rows import parse_json
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.json_rows_py import parse_json

try:
    from aiostream_data._native.ledger import Alone, Charge, Ledger, finish
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.ledger_py import Alone, Charge, Ledger, finish

try:
    from aiostream_data._native.mixing import deal_rows, follow_choices
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.mixing_py import deal_rows, follow_choices

try:
    from aiostream_data._native.ordering import distinct, first_breaks, ids_of_runs, interleave_rows, renumbered
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.ordering_py import distinct, first_breaks, ids_of_runs, interleave_rows, renumbered

try:
    from aiostream_data._native.philox import PhiloxSeeker
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.philox_py import PhiloxSeeker

try:
    from aiostream_data._native.resample import resample
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.resample_py import resample

try:
    from aiostream_data._native.scalar_map import scalar_results
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.scalar_map_py import scalar_results

try:
    from aiostream_data._native.small_files import read_small_files
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.small_files_py import read_small_files

try:
    from aiostream_data._native.spans import crc32c_spans, highway_spans, read_spans
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.spans_py import crc32c_spans, highway_spans, read_spans

try:
    from aiostream_data._native.states import above_lowest, above_lowest_of_groups, json_bytes, planes_of
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.states_py import above_lowest, above_lowest_of_groups, json_bytes, planes_of

try:
    from aiostream_data._native.tar import find_tar_header, walk_tar, walk_tar_file
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.tar_py import find_tar_header, walk_tar, walk_tar_file

try:
    from aiostream_data._native.unbox import unbox_floats, unbox_ints
except ImportError:
    HAVE_NATIVE = False
    from aiostream_data._native.unbox_py import unbox_floats, unbox_ints

__all__ = [
    "HAVE_NATIVE",
    "Alone",
    "BytesMemory",
    "BytesPool",
    "Charge",
    "ImportedArray",
    "ImportedStream",
    "Ledger",
    "NativeBodyReceiver",
    "NativeExchange",
    "PhiloxSeeker",
    "above_lowest",
    "above_lowest_of_groups",
    "are_packed",
    "byte_objects",
    "byte_rows",
    "byte_rows_many",
    "compact",
    "compact_many",
    "copy_arrays",
    "crc32c",
    "crc32c_spans",
    "deal_rows",
    "dict_columns",
    "dicts_of",
    "distinct",
    "exchange_rows",
    "exchange_spans",
    "export_array",
    "export_schema",
    "export_stream",
    "find_csv_records",
    "find_lines",
    "find_tar_header",
    "finish",
    "first_breaks",
    "first_invalid_utf8",
    "follow_choices",
    "frame_tfrecords",
    "hardware_crc",
    "hash_ids",
    "hash_rows",
    "hash_run",
    "highway_spans",
    "ids_of_runs",
    "import_array",
    "import_schema",
    "interleave_rows",
    "json_bytes",
    "length_range",
    "masked_crc32c",
    "ordinary_head",
    "parse_csv",
    "parse_examples",
    "parse_json",
    "planes_of",
    "pull_elements",
    "read_small_files",
    "read_spans",
    "renumbered",
    "reorder_csv",
    "resample",
    "scalar_results",
    "scan_csv",
    "str_objects",
    "str_rows",
    "take_rows",
    "take_rows_many",
    "total_length",
    "tuple_columns",
    "unbox_floats",
    "unbox_ints",
    "unescape_csv",
    "walk_tar",
    "walk_tar_file",
    "words_below",
]
