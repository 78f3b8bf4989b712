"""Dataset: a lazy, immutable, picklable description of a sequence of elements, built by chaining methods."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aiostream_data._engine.memory.memory_limit import default_limit, parse_nbytes
from aiostream_data._native.notice import warn_without_native_core
from aiostream_data.arguments import MOST, flag, function_or_none, integer, seconds_or_none, several, word
from aiostream_data.dataset import batches, functions, keyed_groups, mixtures, sources, windows
from aiostream_data.dataset.callables import refuse_hidden_state
from aiostream_data.dataset.carried_options import checked_options, completed_by_options, merged_options
from aiostream_data.dataset.chain import NO_OPTIONS, Chain, plan_of
from aiostream_data.dataset.column_operators import ColumnOperators
from aiostream_data.dataset.counts import asserted_count, padded_count
from aiostream_data.dataset.element_checks import check_length_of, check_packing, check_padding
from aiostream_data.dataset.file_sources import Reading, StorageOptions, Url, listed_files
from aiostream_data.dataset.indexed_rows import IndexedRows, ReturnedRows, check_in_memory
from aiostream_data.dataset.method_suggestions import Hints
from aiostream_data.dataset.open_sources import completed
from aiostream_data.dataset.tensor_slices import tensor_slices
from aiostream_data.errors import PlanError, UnknownLengthError
from aiostream_data.failing.policies import OnError, Quarantine, Raise, Skip, log_path, policy_of
from aiostream_data.formats.example import ExampleParser
from aiostream_data.formats.features import Feature
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.sequence_example import SequenceExampleParser
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.formats.with_url import WithUrl
from aiostream_data.plan import operators as op
from aiostream_data.plan import sources as src
from aiostream_data.plan.alike import check_concatenated
from aiostream_data.plan.asserted import AssertCardinality, PadToCardinality
from aiostream_data.plan.base import (
    AUTO,
    INFINITE,
    Auto,
    Concurrency,
    ExecutorName,
    Node,
    at_least,
    auto_or_at_least_one,
    native_threads_of,
    seed_of,
    spill_of,
)
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.defaults import OPEN_BINS, SCHEDULE_EVERY
from aiostream_data.plan.endless import Random
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.spec import inferred_spec, spec_of
from aiostream_data.plan.subprocess import in_subprocess
from aiostream_data.plan.take_while import TakeWhile
from aiostream_data.plan.unique import Unique
from aiostream_data.plan.validate import check_extends, check_repeat, check_rereadable, check_transform
from aiostream_data.rows.structure import flatten

if TYPE_CHECKING:
    from aiostream_data.codecs.sample_fields import Decode
    from aiostream_data.device.handover import FrameworkName, HandOff
    from aiostream_data.device.image_cast import ImageCast
    from aiostream_data.formats.base import Format
    from aiostream_data.formats.row_groups import TableFormat
    from aiostream_data.loading.loader import Loader
    from aiostream_data.loading.memory_bound import MemoryBound
    from aiostream_data.plan.aggregate import Aggregator
    from aiostream_data.plan.costs import TooLarge
    from aiostream_data.plan.windows import TooLong
    from aiostream_data.ranks import Policy, Tail
    from aiostream_data.rows.provenance import Origin
    from aiostream_data.rows.text_arrays import Strings
    from aiostream_data.storage.cache.options import ShardCache
    from aiostream_data.transforms.shuffle_quality import ShuffleQuality
    from aiostream_data.weights import Stop, WeightPlan
    from aiostream_data.weights import Weights as WeightsOf

A = TypeVar("A")
E = TypeVar("E")
F = TypeVar("F")
Q = TypeVar("Q", bound=np.generic)
S = TypeVar("S", bound=np.generic)
T = TypeVar("T")
U = TypeVar("U")
Text = TypeVar("Text", bytes, str)

Files: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset[str]"
"""A URL, path or glob pattern; a sequence of URLs, paths or patterns; or a dataset of URLs."""

Several: TypeAlias = "Sequence[Dataset[E]] | Mapping[str, Dataset[E]]"
"""Several datasets: a sequence, or a mapping from names to datasets."""


class Dataset(ColumnOperators, Chain, Generic[T], Hints):
    """Lazy description of a sequence of elements of type ``T``.

    Every operator returns a new dataset. Building a dataset does no I/O and needs no event loop. A method that receives
    an invalid argument raises :class:`PlanError` (a ``ValueError``) immediately. Call :meth:`open` to start a loader
    that reads the dataset.

    Attributes:
        plan: Root node of the plan, a tree of immutable nodes.
    """

    # Functions of flat_map() make many datasets that nobody iterates: these attributes cost them nothing.
    _iteration_seed: int | None = None  # drawn by the first iteration
    _iterated_in: int | None = None  # process that drew the seed
    _held_nbytes: int = 0  # size of its rows in bytes, if it is an element of another dataset

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "carried_options": dict(self.carried_options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @classmethod
    def _begin(cls, node: Node) -> Dataset[Any]:
        return cls(node)

    @classmethod
    def _of_rows(cls, source: Node, nbytes: int) -> Dataset[Any]:
        """Return a dataset that is an element of another dataset and holds rows of ``nbytes`` bytes."""
        made = cls(source)
        made._held_nbytes = nbytes
        return made

    def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Dataset[Any]:
        check_extends(self.plan, name)
        return Dataset(kind(input=self.plan, **arguments), self.carried_options)

    # -- data in memory

    @classmethod
    def from_tensors(cls, element: E) -> Dataset[E]:
        """Return a dataset with a single element: the given structure (tf.data ``from_tensors``)."""
        return cls._begin(src.Tensors(element=element))

    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[Text]) -> Dataset[Text]: ...
    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[int]) -> Dataset[int]: ...
    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[float]) -> Dataset[float]: ...
    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: dict[A, Any]) -> Dataset[dict[A, Any]]: ...
    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset[Any]: ...
    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset[Any]:
        """Return a dataset of slices of the given arrays along their first axis (tf.data ``from_tensor_slices``).

        Elements have the structure of ``tensors`` (dict, tuple, NamedTuple, dataclass); lists become arrays. The
        dataset does not copy arrays, so do not modify the arrays while the dataset is in use. Elements are read-only
        views. A :class:`BytesArray`, :class:`TextArray` or :class:`RaggedArray` yields its rows.

        Raises:
            PlanError: An array has no first axis, or the lengths of the first axes differ.
        """
        return cls._begin(tensor_slices(tensors))

    @classmethod
    def from_dataframe(cls, frame: Any, columns: Sequence[str] | None = None) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of a data frame, as dicts from column name to value.

        ``frame`` is a pandas DataFrame, or any table with the Arrow PyCapsule interface, such as a Polars DataFrame, a
        PyArrow Table or a DuckDB relation. Numbers, and text in Arrow's layout, are not copied if the column has one
        chunk. Do not modify the data frame while the dataset is in use. A missing value is None, except NaN and NaT in
        NumPy columns of pandas. The index of a pandas DataFrame is left out: call its ``reset_index()`` to keep it.

        Args:
            frame: The data frame. The docs page on Arrow lists the types of columns.
            columns: Names of the columns to read, in the order of the keys; None for all columns.

        Raises:
            ColumnError: The data frame has no such column.
            PlanError: An argument is invalid, or the data frame has no columns, or columns without unique str names.
            ArrowTypeError: A column has a type that cannot be read, such as a union. Select other columns.
        """
        from aiostream_data.dataset.data_frames import frame_slices

        return cls._begin(frame_slices(frame, columns))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[E] | AsyncIterable[E]],
        *,
        args: tuple[Any, ...] = (),
        signature: Any = None,
    ) -> Dataset[E]:
        """Return a dataset of the items of ``generator(*args)`` (tf.data ``from_generator``).

        Every epoch calls ``generator`` again.

        A sync generator runs on a dedicated thread. The loader always closes a sync generator at the end of the
        iteration. The engine's event loop awaits an async generator.

        Args:
            args: Arguments of ``generator``.
            signature: Structure of :class:`ArraySpec`. If a signature is given, the loader checks every item against
                this signature.

        Raises:
            PlanError: ``generator`` is not callable (for example, a generator object), or does not accept ``args``.
        """
        return cls._begin(sources.generator(generator, args, signature))

    @classmethod
    def from_iterable(cls, iterable: Iterable[E] | AsyncIterable[E]) -> Dataset[E]:
        """Return a dataset of the items of a sync or async iterable.

        An iterator, such as a generator object or an open file, can be read only once. A plan that would read an
        iterator twice raises an error when the plan is built.
        """
        return cls._begin(sources.python_iterable(iterable))

    @classmethod
    def from_sql(
        cls,
        query: str,
        connection: Callable[[], Any],
        *,
        key: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        paramstyle: str | None = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of a SQL query, as dicts of columns (tf.data ``experimental.SqlDataset``).

        Rows have the order of the column ``key``. The rows are read in pages, and a page begins after the last key, so
        a run resumes at any row. Queries run on a thread. The rows must not change while a run reads them or is
        resumed. Unlike in tf.data, any DB-API driver serves, and the driver chooses the types. See docs/sql.md.

        Args:
            query: SELECT statement. It is used as ``SELECT * FROM (query) ... ORDER BY key LIMIT n``.
            connection: Function without arguments that returns a new DB-API connection. Every run, process and call of
                :meth:`fetch` opens its own.
            key: Column of the query with unique values, int or str without NULL. An index on it makes pages fast.
            params: Values for the placeholders of the query.
            paramstyle: Style of placeholders as in PEP 249, if the driver does not declare its own.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            SqlKeyError: ``key`` is no column, is NULL or not unique, or has another type.
            SqlQueryError: The database refused the connection or the query.
        """
        from aiostream_data.dataset.sql import sql_query

        return cls._begin(sql_query(query, connection, key, params, paramstyle))

    @classmethod
    def range(cls, start: int, stop: int | None = None, step: int = 1, *, dtype: DTypeLike = np.int64) -> Dataset[int]:
        """Return a dataset of the integers in ``range(start, stop, step)`` (tf.data ``range``)."""
        return cls._begin(sources.numbers(start, stop, step, dtype))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1) -> Dataset[int]:
        """Return an infinite dataset of ``start``, ``start + step``, and so on, as int64 (tf.data ``counter``).

        Raises:
            PlanError: An argument is not an int64.

        Raises (when iterated):
            CardinalityError: The next number exceeds int64.
        """
        return cls._begin(sources.counter(start, step))

    @classmethod
    def random(cls, seed: int | None = None, *, rerandomize_each_iteration: bool = False) -> Dataset[int]:
        """Return an infinite dataset of random int64 numbers from 0 to 2**32, exclusive (tf.data ``random``).

        Each number depends only on the seed and on the number of its row. Any run can therefore start at any row. The
        numbers differ from TensorFlow's.

        Args:
            seed: Seed of the numbers. None uses the seed of the loader.
            rerandomize_each_iteration: If True, every epoch has new numbers. If False, all epochs have the same
                numbers.
        """
        again = flag("rerandomize_each_iteration", rerandomize_each_iteration)
        return cls._begin(Random(seed=seed_of(seed), rerandomize_each_iteration=again))

    @classmethod
    def from_list(cls, elements: Sequence[E]) -> Dataset[E]:
        """Return a dataset of the elements in a list (tf.data ``experimental.from_list``).

        The elements can have any structure::

            dataset = Dataset.from_list([{"id": 1, "text": "one"}, {"id": 2, "text": "two"}])

        The dataset stores a copy of the elements as one column per leaf, as :meth:`from_tensor_slices` does.
        :meth:`shuffle` therefore needs no buffer. The elements have equal structures, and their leaves have equal types
        and shapes; strings and bytes can have any length. For elements that differ, use :meth:`from_iterable`.

        Raises:
            PlanError: ``elements`` is not a non-empty list or tuple, or the elements differ in structure, type or
                shape.
        """
        return cls._begin(sources.from_list(elements))

    # -- files

    @classmethod
    def open_any(
        cls,
        url: Url,
        *,
        shuffle_shards: bool = False,
        seed: int | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[Any]:
        """Return a dataset of a file, of all files in a folder, or of all files that match a pattern, in any format.

        The names and the first bytes of the files tell the format. Formats of installed distributions are recognized
        too (docs/own_formats.md). The logger ``aiostream_data`` reports the format with the constructor that reads it,
        level ``INFO``. Call this constructor in programs: it has more arguments. Lists the files and reads the start of
        one of them, so this call blocks. See docs/formats.md.

        Args:
            url: URL or path of a file or folder, or a pattern.
            shuffle_shards, seed, on_error: As for :meth:`from_tfrecord`.
            storage_options: Options of the store, as in fsspec.

        Raises:
            FormatPluginError: An installed distribution offers a format that cannot be loaded.
            NoMatchError: There is no such file.
            PlanError: The format is unknown, or the files have several formats.
            StorageError: The store did not answer.
        """
        from aiostream_data.dataset.any_format import find_format

        found = find_format(url, storage_options)
        common: dict[str, Any] = {"shuffle_shards": shuffle_shards, "seed": seed, "on_error": on_error}
        dataset: Dataset[Any] = found.read_by(cls, **common, storage_options=storage_options)
        return dataset

    @classmethod
    def from_hub(
        cls,
        repository: str,
        split: str = "train",
        *,
        config: str | None = None,
        revision: str = "main",
        token: str | bool | None = None,
        cycle_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[Any]:
        """Return a dataset of one split of a data set on the Hugging Face Hub, as its constructor reads the files.

        README.md, or the names of the files, tell the files of each split. Their names tell the format. The dataset
        reads the files of one commit, whose hash is part of its plan and of the states. The logger ``aiostream_data``
        reports the commit, level ``INFO``. Lists the files, so this call blocks. tf.data has no equivalent. See
        docs/hub.md.

        Args:
            repository: Name of the data set, as ``"organization/name"``.
            split: Name of the split.
            config: Name of a configuration in README.md; None for the default one.
            revision: Branch, tag or commit. Pass a commit to read the same files in every run and on every rank.
            token: Access token; False for none. By default, that of the environment or of ``hf auth login``.
            cycle_length, shuffle_shards, seed, on_error: As for :meth:`from_tfrecord`.
            storage_options: Options of the store, such as ``endpoint``.

        Raises:
            AccessDeniedError, CredentialsError: The data set is private or gated.
            MissingExtraError: aiohttp or PyYAML is not installed (extra ``hub``).
            ObjectNotFoundError, NoMatchError: There is no such data set or revision, or it has no files.
            PlanError: There is no such split or configuration, or its files have several formats or an unknown one.
            StorageError: The Hub did not answer.
        """
        from aiostream_data.dataset.hub_files import find_hub_files

        options = dict(storage_options or {}) if token is None else {**(storage_options or {}), "token": token}
        found = find_hub_files(repository, split, config, revision, options)
        common: dict[str, Any] = {"cycle_length": cycle_length, "shuffle_shards": shuffle_shards, "seed": seed}
        dataset: Dataset[Any] = found.read_by(cls, **common, on_error=on_error, storage_options=options)
        return dataset

    @classmethod
    def list_files(
        cls,
        pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        seed: int | None = None,
        index: Url | None = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        """Return a dataset of the URLs that match one or several glob patterns (tf.data ``list_files``).

        Unlike in tf.data, the URLs are sorted, unless ``seed`` requests a random order.

        Args:
            pattern: One glob pattern, URL or path, or a sequence of these.
            seed: Seed for shuffling the URLs. Every epoch has a new order.
            index: File written by :func:`aiostream_data.write_index`. The URLs come from this index file instead of a
                listing. Without a pattern, all URLs of the index are used.
            storage_options: Options of the store (dict), as in fsspec.

        Raises (when opened):
            NoMatchError: A pattern matches no file.
            IndexFileError: ``index`` is not a valid index file.
        """
        return cls._begin(listed_files(pattern, seed, index, storage_options))

    @classmethod
    def from_tfrecord(
        cls,
        files: Files | None = None,
        *,
        compression: str = "auto",
        verify: bool = True,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return a dataset of the records in TFRecord files, as bytes (tf.data ``TFRecordDataset``).

        Args:
            files: URLs, paths or glob patterns, or a dataset of URLs.
            compression: Compression of the files: "auto" (detected from the first bytes), "" (none), "gzip", "zlib",
                "zstd", "bz2", "xz", "lz4" or "snappy".
            verify: If True, check the CRC32C of every payload. The reader always checks the CRC32C of every length
                field.
            cycle_length, block_length: Number of files to interleave, and number of consecutive rows from one file, as
                in tf.data's ``interleave``.
            shuffle_shards: If True, read the files in a new random order every epoch, using ``seed``.
            seed: Seed of the random file order; the loader's seed by default.
            ordered: If False, emit records of any file whose records are ready.
            read_ahead: Number of large files to open before their rows are needed. Small files are read in groups.
            index: File written by :func:`aiostream_data.write_index`. The dataset reads the file names from this index
                instead of listing files. Without ``files``, the dataset reads all files of the index, in the order of
                the index.
            on_error: Error policy for damaged records, and for damaged or missing files: "raise" (the default), "skip",
                or a policy object as for :meth:`map`, except Replace. See docs/bad_data.md.
            storage_options: Options of the store (dict), as in fsspec.

        Raises (when opened or iterated):
            NoMatchError, StorageError: The files cannot be found or read.
            IndexFileError: The index is invalid or truncated.
            ErrorBudgetError: The number of lost records exceeds the limit of ``on_error``.
            CorruptRecordError: A file is damaged. With ``verify``, every delivered record matches its checksum.
        """
        read = Reading(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error)
        return cls._begin(read.node(files, TFRecordFormat(verify=flag("verify", verify)), storage_options, index))

    @classmethod
    def from_text(
        cls,
        files: Files | None = None,
        *,
        encoding: str | None = "utf-8",
        compression: str = "auto",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        r"""Return a dataset of the lines in text files, without line ends (tf.data ``TextLineDataset``).

        A line ends with ``\n`` or ``\r\n``; the last line needs no line end. Lines are str. With ``encoding=None``,
        lines are bytes, as in tf.data. All other arguments are the same as for :meth:`from_tfrecord`.

        Args:
            verify: If True, check a complete compressed file before delivering any of its lines. This check reads and
                decompresses the file one additional time. If False, the loader may deliver some lines of a damaged file
                before the error.
        """
        read = Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        return cls._begin(read.node(files, TextFormat(encoding=encoding), storage_options, index))

    @classmethod
    def from_csv(
        cls,
        files: Files | None = None,
        schema: Mapping[str, DTypeLike] | None = None,
        *,
        header: bool = True,
        delimiter: str = ",",
        na_values: Sequence[str] = ("",),
        select: Sequence[str] | None = None,
        quote: str | None = '"',
        encoding: str | None = "utf-8",
        max_line_nbytes: int = 64 << 20,
        compression: str = "auto",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        r"""Return a dataset of the rows in CSV or TSV files, as dicts of typed values (tf.data ``CsvDataset``).

        Rows follow RFC 4180: a field in quotes can contain delimiters, newlines and doubled quotes. A row ends with
        ``\n`` or ``\r\n``. Empty lines are not rows. All arguments not listed below are the same as for
        :meth:`from_text`. See docs/csv.md.

        Args:
            schema: Type of each column of the files, by name: ``str``, ``bytes`` or a NumPy dtype of bool, integers,
                float32 or float64. None infers the types from the first rows of the first file with rows when the
                dataset is opened: the first of int64, uint64, float64, bool and str that fits. Integers are never
                rounded: larger ones are str. With ``encoding=None``, text is bytes.
            header: If True, the first row of each file contains the names of the columns, in any order. If False, the
                columns are in the order of ``schema``, or have the names ``column_0``, ``column_1`` and so on.
            delimiter: Character between fields; ``"\t"`` for TSV.
            na_values: Texts of fields without a value, whose value is None. For str and bytes, only unquoted fields.
            select: Names of the columns to deliver, in this order. Other columns are not parsed.
            quote: Character around fields; None if quotes have no meaning.
            max_line_nbytes: Maximum length of a row in bytes, which limits memory use after an unclosed quote.

        Raises (when opened or iterated):
            CsvSchemaError: The header of a file differs from the schema or from the first file.
            CsvParseError: A row has another number of fields, or a field is not of its type. The error names the file,
                line and column. ``on_error`` also applies to such rows.
        """
        from aiostream_data.dataset.csv_files import CsvArguments

        read = Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        given = CsvArguments(schema, header, delimiter, na_values, select, quote, encoding, max_line_nbytes)
        source = cls._begin(read.node(files, given.format(), storage_options, index))
        parsed = {"decoder": given.parser(), "features": given.shown_names, "name": "parse_csv", "on_error": on_error}
        return source._then(op.ParseExample, "parse_csv", **parsed)

    @classmethod
    def from_jsonl(
        cls,
        files: Files | None = None,
        schema: Mapping[str, Any] | Literal["infer"] | None = None,
        *,
        max_line_nbytes: int = 64 << 20,
        compression: str = "auto",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[Any]:
        """Return a dataset of the records in JSON lines files, one JSON value per line.

        Lines are strict JSON in UTF-8. Blank lines are not records. All arguments not listed below are the same as for
        :meth:`from_text`. See docs/jsonl.md.

        Args:
            schema: Type of the values by key: ``str``, a NumPy dtype of bool, integers, float32 or float64,
                ``VarLen(dtype)`` for a list of these, or a dict of such types. Elements are then dicts with these keys,
                and are parsed to columns. A missing key or null is None. Other keys are ignored. ``"infer"`` infers the
                schema from the first records of the first file with objects when the dataset is opened. With
                ``schema=None``, elements are what ``json.loads`` returns.
            max_line_nbytes: Maximum length of a line in bytes. A longer line is damaged.

        Raises (when iterated):
            JsonParseError: A line is not strict JSON, or a value is not of its type. The error names the file, the
                line, the byte offset and the key. ``on_error`` also applies to such lines.
            CorruptRecordError: A line is not UTF-8, or too long.
        """
        from aiostream_data.dataset.json_files import json_decoder, shown_keys
        from aiostream_data.formats.json_lines import JsonLinesFormat

        read = Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        decoder = json_decoder(schema)
        source = cls._begin(read.node(files, JsonLinesFormat(max_line_nbytes=max_line_nbytes), storage_options, index))
        parsed = {"decoder": decoder, "features": shown_keys(schema), "name": "parse_jsonl", "on_error": on_error}
        return source._then(op.ParseExample, "parse_jsonl", **parsed)

    @classmethod
    def from_fixed_length(
        cls,
        files: Files | None,
        record_nbytes: int,
        *,
        header_nbytes: int = 0,
        footer_nbytes: int = 0,
        compression: str = "",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return a dataset of records with ``record_nbytes`` bytes each (tf.data ``FixedLengthRecordDataset``).

        The number of bytes between header and footer must be a multiple of ``record_nbytes``. ``verify`` is the same as
        for :meth:`from_text`; all other arguments are the same as for :meth:`from_tfrecord`.
        """
        read = Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        format = FixedLengthFormat(
            record_nbytes=record_nbytes, header_nbytes=header_nbytes, footer_nbytes=footer_nbytes
        )
        return cls._begin(read.node(files, format, storage_options, index))

    @classmethod
    def from_format(
        cls,
        files: Files | None,
        format: Format | TableFormat,
        *,
        compression: str = "auto",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[Any]:
        """Return a dataset of the records of files in a format of your own. See docs/own_formats.md.

        Elements are the records of the format's framer, ``bytes`` or ``str``, or the rows of its row groups. ``verify``
        is the same as for :meth:`from_text`; all other arguments are the same as for :meth:`from_tfrecord`. Formats
        with row groups do not use ``compression``, ``verify`` and ``read_ahead``.

        Args:
            format: Object that implements ``Format`` or ``TableFormat`` of ``aiostream_data.formats.extending``,
                usually a frozen dataclass. A class that other processes cannot import works only in this process.

        Raises:
            ArgumentTypeError: ``format`` is not a format object.
            PlanError: ``format`` has an invalid name, or cannot be hashed. Or an argument does not apply to formats
                with row groups.
        """
        from aiostream_data.formats.own_format import checked_format
        from aiostream_data.formats.row_groups import TableFormat

        read = Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        checked = checked_format(format)
        if not isinstance(checked, TableFormat):
            return cls._begin(read.node(files, checked, storage_options, index))
        from aiostream_data.dataset.tables import rows_of

        read.refuse_streams(checked.name)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        rows = rows_of(checked, storage_options, on_error)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_webdataset(
        cls,
        files: Files | None = None,
        *,
        decode: Decode = None,
        compression: str = "auto",
        verify: bool = True,
        max_sample_nbytes: int = 1 << 30,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the samples in WebDataset tar files: ``{"__key__": "n01/17", "jpg": b"...", ...}``.

        A sample is a run of members with the same key. The key is the path up to the first dot of the file name; the
        rest of the name in lower case is the extension. The other arguments are as in :meth:`from_tfrecord`.

        Args:
            decode: True to decode fields by extension: JSON, text, class numbers, ``.npy`` arrays and images. A dict
                from extensions to functions decodes only these fields. See docs/webdataset.md.
            verify: If True, a file without the end marker of tar archives is damaged. The reader always checks the
                checksum of every header.
            max_sample_nbytes: Maximum size of a sample in the archive, in bytes. A larger sample is damaged data.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, or a sample is broken: its members are not consecutive, an extension
                occurs twice, or a member is a link, a device or a sparse file.
            SampleDecodeError: A field cannot be decoded.
        """
        from aiostream_data.codecs.sample_fields import fields_decoder
        from aiostream_data.formats.webdataset import WebDatasetFormat
        from aiostream_data.formats.webdataset_samples import WebDatasetSamples

        read = Reading(
            *(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error),
            decoders=(WebDatasetSamples(),),
        )
        format = WebDatasetFormat(verify=flag("verify", verify), max_sample_nbytes=max_sample_nbytes)
        decoder = fields_decoder(decode)
        samples = cls._begin(read.node(files, format, storage_options, index))
        return samples if decoder is None else samples.map(decoder, on_error=on_error)

    @classmethod
    def from_files(
        cls,
        files: Files | None = None,
        *,
        compression: str = "",
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset with one element ``{"url": str, "data": bytes}`` per object (file), in the order of URLs.

        The arguments are the same as for :meth:`from_tfrecord`.
        """
        read = Reading(compression, 1, 1, shuffle_shards, seed, ordered, read_ahead, on_error, False, (WithUrl(),))
        return cls._begin(read.node(files, WholeFileFormat(), storage_options, index))

    @classmethod
    def from_image_folder(
        cls,
        url: Url,
        *,
        classes: Sequence[str] | None = None,
        decode: Callable[[bytes], Any] | bool | None = None,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the images in ``url/<class name>/**``: ``{"image": bytes, "label": int, "path": str}``.

        The label is the place of the folder's name in the sorted names of all class folders, int64. The path begins
        below ``url``, as in ``"cat/1.jpg"``. Images are in the order of their URLs. Other files are ignored: files
        directly in ``url``, hidden files and folders, and files whose names do not end as those of images. See
        docs/image_folder.md. The other arguments are as in :meth:`from_files`.

        Args:
            url: URL or path of the folder that contains the class folders.
            classes: Names of the class folders in the order of their labels. Other folders are not read. By default,
                ``open()`` lists the folders; :func:`image_classes` returns their names.
            decode: True to decode each image to ``uint8[height, width, 3]`` with :func:`.codecs.decode_image`, which
                needs the extra ``images``. Or a function from the bytes of an image to its pixels.
            shuffle_shards: If True, read the images in a new random order in each epoch.
            index: Index file with the URLs of the images; required for HTTP, whose servers cannot list.

        Raises:
            PlanError: An argument is invalid.

        Raises (when opened or iterated):
            NoMatchError: A class has no image, or ``url`` has no class folder.
            DecodeError: An image cannot be decoded.
        """
        from aiostream_data.dataset.image_folders import image_decoder, image_folder

        read = Reading("", 1, 1, shuffle_shards, seed, ordered, read_ahead, on_error)
        rows = cls._begin(image_folder(url, classes, read, storage_options, index))
        decoder = image_decoder(decode)
        return rows if decoder is None else rows.map(decoder, on_error=on_error)

    @classmethod
    def from_mds(
        cls,
        folder: Url,
        *,
        columns: Sequence[str] | None = None,
        decode: bool | None = None,
        max_sample_nbytes: int = 1 << 30,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the samples in a folder of MosaicML MDS shards, as dicts from column name to value.

        ``open()`` reads ``index.json``, which lists the shards and their columns. Shards can be compressed with gzip or
        zstd. See docs/mds.md for the values of each encoding. The other arguments are as in :meth:`from_tfrecord`.

        Args:
            folder: URL or path of the folder with ``index.json``, or of the ``.json`` file itself.
            columns: Names of the columns to deliver; None for all columns. Columns with pickles are refused.
            decode: True to decode ``jpeg`` and ``png`` columns to ``uint8[height, width, 3]`` with
                :func:`.codecs.decode_image`. By default, these columns are bytes.
            max_sample_nbytes: Maximum size of a sample in bytes. A larger sample is damaged data.

        Raises:
            PlanError: An argument is invalid.

        Raises (when opened or iterated):
            MdsError: The index is invalid, a column is not supported, or a value cannot be decoded.
            CorruptRecordError: A shard is damaged or truncated.
            DecodeError: An image cannot be decoded.
        """
        from aiostream_data.dataset.mds_folders import images_decoder, mds_samples, mds_source

        read = Reading("", cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error)
        source = cls._begin(mds_source(folder, read, max_sample_nbytes, storage_options))
        parser = mds_samples(columns)
        parsed = {"decoder": parser, "features": parser.select, "name": "parse_mds", "on_error": on_error}
        samples: Dataset[Any] = source._then(op.ParseExample, "parse_mds", **parsed)
        decoder = images_decoder(decode)
        return samples if decoder is None else samples.map(decoder, on_error=on_error)

    @classmethod
    def from_tfds(
        cls,
        folder: Url,
        split: str = "train",
        *,
        features: Sequence[str] | None = None,
        decode: bool = True,
        verify: bool = True,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the examples in a folder that TensorFlow Datasets prepared, without TensorFlow.

        ``open()`` reads ``dataset_info.json`` and ``features.json``, which declare the shards and the features.
        Elements are nested dicts. See docs/tfds.md for the value of each feature. The other arguments are as in
        :meth:`from_tfrecord`.

        Args:
            folder: URL or path of the folder of one version, such as ``"data/mnist/3.0.1"``.
            split: Name of a split, a slice such as ``"train[:80%]"``, or several of them, joined by ``+``. Slices
                select the same rows as in TensorFlow Datasets.
            features: Names of the features to deliver, such as ``"image"`` or ``"objects/label"``; None for all.
            decode: If True, decode images with :func:`.codecs.decode_image`, which needs the extra ``images``. If
                False, images are ``bytes``.

        Raises:
            PlanError: An argument is invalid.

        Raises (when opened or iterated):
            TfdsError: A description is invalid, a feature is not supported, or a value cannot be decoded.
            PlanError: The folder has no such split or feature, or a slice is not part of its split.
            CorruptRecordError, ExampleParseError: A shard or a record is damaged.
            DecodeError: An image cannot be decoded.
        """
        from aiostream_data.dataset.tfds_folders import images_decoder, tfds_examples, tfds_source

        read = Reading("", cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error)
        source = cls._begin(tfds_source(folder, split, verify, read, storage_options))
        parser = tfds_examples(features)
        parsed = {"decoder": parser, "features": parser.select or (), "name": "parse_tfds", "on_error": on_error}
        examples: Dataset[Any] = source._then(op.ParseExample, "parse_tfds", **parsed)
        decoder = images_decoder(decode)
        return examples if decoder is None else examples.map(decoder, on_error=on_error)

    @classmethod
    def from_parquet(
        cls,
        files: Files | None = None,
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        *,
        partitions: bool = False,
        schema: Mapping[str, DTypeLike] | None = None,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of Parquet files, as dicts from column name to value.

        The loader reads the footer of each file, and then the bytes of the selected columns, one row group after the
        other. A missing value is None. Dictionary-encoded columns are decoded, and structs become dicts.

        The files are interleaved by :meth:`interleave`, so each row group counts against the memory limit twice: one is
        emitted while the next is decoded.

        Args:
            files: As for :meth:`from_tfrecord`.
            columns: Names of the columns to read; None for all columns. ``a.b`` selects a field of the struct ``a``.
            filters: Conditions ``(column, operator, value)`` that must all hold, or a list of such lists, of which one
                must hold. Operators: ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``. Row groups whose
                statistics exclude all rows are not read. A missing value satisfies no condition.
            partitions: If True, add the ``name=value`` folders of the URL as text columns, as Hive writes them: those
                that ``columns`` names, or all of them if it names none. Filters may name them.
            schema: Types of columns whose types differ between the files, by name: ``str``, ``bytes`` or a NumPy dtype.
                Numbers of every file are converted to the type if it contains all numbers of their own type, before
                filters are applied. Other columns must have the same type in all files.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, or is not a Parquet file.
            PlanError: A file has no column of this name, or a filter does not fit the type of its column.
            TableSchemaError: The selected columns of two files differ, or values of a column could be lost by its
                conversion to the type in ``schema``.
            ArrowTypeError: A column has a type that cannot be read, such as a union. Select other columns.
            MemoryBudgetError: A row group does not fit into the memory limit.
            MissingExtraError: PyArrow is not installed (extra ``parquet``).
        """
        from aiostream_data.dataset.tables import parquet_format, rows_of

        rows = rows_of(parquet_format(columns, filters, partitions, schema), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_delta(
        cls,
        url: Url,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        *,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of one version of a Delta table, as dicts from column name to value.

        :meth:`open` asks the log of the table for the data files of the version. They are read as by
        :meth:`from_parquet`, in the order of their URLs, with the columns and types of the table. Deleted rows are left
        out. A saved state names the version, so a resumed run reads the same files. See docs/delta.md.

        Args:
            url: URL or path of the folder that contains ``_delta_log``: local, ``s3://`` or ``gs://``.
            version: Number of the version. None is the version of the state, or else the newest one. Required if
                several ranks or workers share the dataset.
            columns, filters: As for :meth:`from_parquet`. Files are not opened if their partition excludes all rows.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.

        Raises:
            PlanError: An argument is invalid.

        Raises (when opened or iterated):
            NoMatchError: There is no Delta table.
            TableSnapshotError: There is no such version, or the table has a feature that is not supported.
            RankError: Several ranks or workers share the dataset, and ``version`` is None.
            TableSchemaError: A data file has a column of a type that is not converted to the type of the table.
            PlanError, CorruptRecordError, ArrowTypeError, MemoryBudgetError: As for :meth:`from_parquet`.
            MissingExtraError: deltalake or PyArrow is not installed (extra ``delta``).
        """
        from aiostream_data.dataset.delta_tables import DeltaTable
        from aiostream_data.dataset.table_snapshots import rows_of_snapshot, snapshot_files

        files = cls._begin(snapshot_files(DeltaTable.of(url, storage_options), "version", version))
        listed = cls._listed(files, None, None, shuffle_shards, seed)
        rows = rows_of_snapshot(columns, filters, on_error)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_iceberg(
        cls,
        table: Any,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        *,
        catalog: Mapping[str, str] | str | None = None,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of one snapshot of an Iceberg table, as dicts from column name to value.

        :meth:`open` reads the metadata of the snapshot with pyiceberg. The data files are read as by
        :meth:`from_parquet`, in the order of their URLs. Columns are found by field id, so renamed columns have their
        new names, promoted ones their new types, and added ones None in older files. Deleted rows are left out. A saved
        state names the snapshot, so a resumed run reads the same files. See docs/iceberg.md.

        Args:
            table: A ``pyiceberg.table.Table``, or the name of a table, such as ``"db.events"``.
            snapshot_id: Number of the snapshot, which is read with its own schema. None is the snapshot of the state,
                or else the current one with the current schema. Required if several ranks or workers share the dataset.
            columns, filters: As for :meth:`from_parquet`. Files are not opened if their partition excludes all rows.
            catalog: For a name: the properties of the catalog as for ``pyiceberg.catalog.load_catalog``, also
                ``"name"``; or the name of a catalog in the configuration of pyiceberg.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            storage_options: Options for the data files. None uses the ``s3.`` properties of the table.

        Raises:
            PlanError: An argument is invalid.

        Raises (when opened or iterated):
            NoMatchError: The catalog has no such table.
            TableSnapshotError: There is no such snapshot, or it has a feature that is not supported.
            RankError: Several ranks or workers share the dataset, and ``snapshot_id`` is None.
            TableSchemaError: A data file has no field ids, or a column of a type that is not converted.
            PlanError, CorruptRecordError, ArrowTypeError, MemoryBudgetError: As for :meth:`from_parquet`.
            MissingExtraError: pyiceberg or PyArrow is not installed (extra ``iceberg``).
        """
        from aiostream_data.dataset.iceberg_tables import IcebergTable
        from aiostream_data.dataset.table_snapshots import rows_of_snapshot, snapshot_files

        files = cls._begin(snapshot_files(IcebergTable.of(table, catalog, storage_options), "snapshot_id", snapshot_id))
        listed = cls._listed(files, None, None, shuffle_shards, seed)
        rows = rows_of_snapshot(columns, filters, on_error)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_arrow(
        cls,
        files: Files | None = None,
        columns: Sequence[str] | None = None,
        *,
        schema: Mapping[str, DTypeLike] | None = None,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of Arrow IPC files (Feather V2) or streams, as dicts from column name to value.

        The loader reads the metadata of each file, and then the bytes of the selected columns, one record batch after
        the other. A missing value is None. Dictionary-encoded columns are decoded, structs become dicts, and extension
        types are read as their storage types.

        Args:
            files: As for :meth:`from_tfrecord`.
            columns: Names of the columns to read; None for all columns. ``a.b`` selects a field of the struct ``a``.
            schema: Types of columns whose types differ between the files, by name, as for :meth:`from_parquet`.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, or is neither an Arrow file nor an Arrow stream.
            PlanError: A file has no column of this name.
            TableSchemaError: Two files differ in their columns, or values of a column could be lost by its conversion
                to the type in ``schema``.
            ArrowTypeError: A column has a type that cannot be read, such as a union. Select other columns.
            MemoryBudgetError: A record batch does not fit into the memory limit.
            MissingExtraError: PyArrow is not installed (extra ``arrow``).
        """
        from aiostream_data.dataset.tables import arrow_format, rows_of

        rows = rows_of(arrow_format(columns, schema), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_npy(
        cls,
        files: Files | None = None,
        fields: Sequence[str] | None = None,
        *,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[Any]:
        """Return a dataset of the rows of NumPy files: ``array[0]``, ``array[1]``, and so on.

        An element of a ``.npy`` file has the shape ``array.shape[1:]`` and the dtype of the array. An element of a
        structured array is a dict of its fields. An element of a ``.npz`` archive is a dict with one row of each array.
        Only the header and the byte ranges of the needed rows are read. A compressed archive is read whole.

        Args:
            files: As for :meth:`from_tfrecord`. Archives are recognized by their first bytes.
            fields: Names of the fields of a structured array, or of the arrays of an archive; None for all.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, is not a NumPy file, or contains Python objects, which are pickles.
                Or the arrays of an archive differ in their number of rows.
            PlanError: A file has no field of this name.
            TableSchemaError: Two files differ in their dtype, in the shape of a row, or in their fields.
            MemoryBudgetError: A compressed archive does not fit into the memory limit.
        """
        from aiostream_data.dataset.tables import npy_format, rows_of

        rows = rows_of(npy_format(fields), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_tokens(
        cls,
        files: Files | None,
        length: int,
        *,
        stride: int | None = None,
        dtype: DTypeLike = "uint16",
        header_nbytes: int = 0,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[NDArray[Any]]:
        """Return a dataset of sequences of tokens: arrays of ``length`` integers.

        The files contain integers without a header (``.bin`` files of nanoGPT and Megatron-LM), or are ``.npy`` files
        of one axis. A sequence does not cross the end of a file. Tokens after the last complete sequence of a file are
        left out. A sequence has the dtype of the file, in the byte order of this machine.

        Args:
            files: As for :meth:`from_tfrecord`. NumPy files are recognized by their first bytes.
            length: Number of tokens of a sequence.
            stride: Number of tokens from the start of a sequence to the start of the next one; None for ``length``.
                With ``length=1025`` and ``stride=1024``, the last token of a sequence is the first one of the next.
            dtype: Type of the tokens of files without a header, such as ``"uint16"``, ``"uint32"`` or ``">u2"``.
            header_nbytes: Number of bytes to skip at the start of files that are not NumPy files.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for sequences.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: The size of a file is not a multiple of the size of a token. Or a file is compressed, is
                in another format, or is an array of other shapes or types.
            TableSchemaError: Two NumPy files differ in their dtype.
        """
        from aiostream_data.dataset.tables import rows_of, tokens_format

        rows = rows_of(tokens_format(length, stride, dtype, header_nbytes), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_hdf5(
        cls,
        files: Files | None = None,
        fields: Sequence[str] | None = None,
        *,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return a dataset of the rows of HDF5 files, as dicts with one row of each dataset of the file.

        A row has the shape of the dataset without its first axis. Groups and compound types become nested dicts, and
        strings become ``str``. Only the metadata and the chunks of the needed rows are read. If a dataset has strings
        of any length, the file is read whole. Links and data in other files are refused.

        Args:
            files: As for :meth:`from_tfrecord`.
            fields: Names of datasets, or of groups for all datasets below them, such as ``"train/images"``. None for
                all datasets of the file. They must have the same number of rows.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, or is not an HDF5 file.
            PlanError: A file has no dataset of this name, or a dataset has no rows, another number of rows, a type or a
                filter that is not supported, or data in other files.
            TableSchemaError: Two files differ in the dtype or the shape of a row.
            MemoryBudgetError: A group of chunks, or a file that is read whole, does not fit into the memory limit.
            MissingExtraError: h5py is not installed (extra ``hdf5``).
        """
        from aiostream_data.dataset.tables import hdf5_format, rows_of

        rows = rows_of(hdf5_format(fields), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def from_array_record(
        cls,
        files: Files | None = None,
        *,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return the records of ArrayRecord files, the files that Grain reads, as ``bytes``.

        Only the footer and the chunks of the needed records are read. The hashes of all chunks are checked. The
        compressions zstd (extra ``zstd``), brotli and snappy (extra ``arrow``) are supported. Transposed chunks are
        not. tf.data has no equivalent.

        Args:
            files: As for :meth:`from_tfrecord`.
            cycle_length, block_length, ordered: As for :meth:`interleave`.
            on_error: Error policy for damaged row groups and files, and for files that no longer exist; see
                :meth:`from_tfrecord`.
            shuffle_shards, seed: Shuffle the files in each epoch; see :meth:`shuffle` for rows.
            index: As for :meth:`list_files`.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            CorruptRecordError: A file is damaged, or is not an ArrayRecord file.
            PlanError: A file has transposed chunks.
            MemoryBudgetError: A chunk does not fit into the memory limit.
            MissingExtraError: The library for the compression is not installed.
        """
        from aiostream_data.dataset.tables import rows_of
        from aiostream_data.formats.array_record import ArrayRecordFormat

        rows = rows_of(ArrayRecordFormat(), storage_options, on_error)
        listed = cls._listed(files, index, storage_options, shuffle_shards, seed)
        return listed.interleave(rows, cycle_length=cycle_length, block_length=block_length, ordered=ordered)

    @classmethod
    def _listed(cls, files: Any, index: Any, storage_options: Any, shuffle_shards: Any, seed: Any) -> Dataset[Any]:
        """Return the URLs of the files, in the order in which they are opened."""
        is_listed = isinstance(files, Dataset)
        urls: Dataset[Any] = files if is_listed else cls.list_files(files, index=index, storage_options=storage_options)
        return urls.shuffle(seed=seed) if flag("shuffle_shards", shuffle_shards) else urls

    # -- mixtures

    @classmethod
    def sample_from(
        cls,
        datasets: Several[E],
        weights: WeightPlan | Dataset[Any] | None = None,
        *,
        seed: int | None = None,
        stop: Stop = "first",
        random: bool = False,
        schedule_every: int = SCHEDULE_EVERY,
    ) -> Dataset[E]:
        """Mix the rows of several datasets in proportion to weights (tf.data ``sample_from_datasets``).

        The proportions hold at every row, not only on average. With constant weights, the row count of each dataset
        always differs from its exact share by at most one row. Call ``shuffle`` and ``repeat`` on the input datasets,
        not on the mixture.

        Args:
            datasets: Sequence of datasets, or a dict of datasets. Reports use the dict's keys as names.
            weights: One number per dataset; weights are equal by default. The weight 0 excludes a dataset. To change
                the weights at given rows of the mixture, pass a list of (first row, weights), or a function of the row
                number. A dataset of weight vectors gives the weights of each row, as in tf.data: the mixture ends when
                the vectors end. To change the weights of a running loader, call :meth:`Loader.set_weights`.
            seed: Seed for ``random=True``.
            stop: "first" ends the mixture when the next row should come from an exhausted dataset (tf.data
                ``stop_on_empty_dataset=True``). "all" continues with the remaining datasets until all datasets are
                exhausted. With a dataset of weights, it skips vectors that select an exhausted dataset.
            random: If True, choose the dataset of every row randomly and independently, as tf.data does. The
                proportions of the datasets are then correct only on average.
            schedule_every: Number of rows between two calls of a schedule function.

        Raises:
            PlanError: The weights are invalid, or the element structures of the datasets differ. For a dataset of
                weights, the error is raised when iterated, and a note names the record.
        """
        mixture = mixtures.mix(datasets, weights, seed, stop, random, schedule_every)
        return Dataset(mixture, merged_options(_values(datasets)))

    @classmethod
    def weighted_flat_map(cls, datasets: Several[E], weights: WeightsOf | None = None) -> Dataset[E]:
        """Emit the first elements of each dataset, in proportion to weights (tf.data ``weighted_flat_map``).

        All elements of one dataset precede those of the next dataset. The result has as many elements as the lengths of
        the datasets allow. For example, datasets of the numbers 0 to 9 and 10 to 19 with the weights 0.5 and 1 give the
        numbers 0 to 4 and 10 to 19. Shuffle the result to mix the datasets.

        Args:
            datasets: Sequence of datasets, or a dict of datasets. Their lengths must be known before reading.
            weights: One number per dataset, or a dict by name; weights are equal by default.

        Raises:
            PlanError: The weights are invalid, the element structures differ, or the length of a dataset is unknown.
        """
        return cls._begin(mixtures.in_proportion(datasets, weights))

    @classmethod
    def choose_from(cls, datasets: Several[E], choices: Dataset[Any], *, stop: Stop = "first") -> Dataset[E]:
        """Take each row from the dataset that ``choices`` selects (tf.data ``choose_from_datasets``).

        Args:
            datasets: Sequence of datasets, or a dict of datasets. Reports use the dict's keys as names.
            choices: Dataset of integers. Each integer is the index (from 0) of the dataset that supplies the next row.
            stop: With "first", the result ends when the chosen dataset is exhausted (tf.data
                ``stop_on_empty_dataset=True``). With "all", choices of exhausted datasets are ignored, and the result
                ends when all datasets are exhausted. With either value, the result also ends after the last choice.

        Raises:
            PlanError: The choices are not integers, or the element structures of the datasets differ.
            ChoiceError (when iterated): A choice is not the index of a dataset.
        """
        chosen = mixtures.choose(datasets, choices, stop)
        return Dataset(chosen, merged_options([*_values(datasets), choices]))

    # -- records

    def parse_example(
        self: Dataset[bytes], features: Mapping[str, Feature], *, on_error: OnError = None
    ) -> Dataset[dict[str, Any]]:
        """Parse serialized ``tf.train.Example`` records into dicts of features (tf.io ``parse_example``).

        Native code parses several records per call. If possible, the worker call that splits a file into records also
        parses these records.

        Args:
            features: Type and shape of each feature, by name.
            on_error: Error policy for records that do not match ``features``; see :meth:`map`.

        Raises (when iterated):
            ExampleParseError: A record does not match the features. The error names the URL, record and feature, and
                the expected and actual values.
        """
        parser = ExampleParser(features)
        policy_of(on_error)
        return self._then(op.ParseExample, "parse_example", decoder=parser, features=tuple(features), on_error=on_error)

    def parse_sequence_example(
        self: Dataset[bytes],
        context: Mapping[str, Feature],
        sequences: Mapping[str, Feature],
        *,
        on_error: OnError = None,
    ) -> Dataset[dict[str, dict[str, Any]]]:
        """Parse serialized ``tf.train.SequenceExample`` records (tf.io ``parse_sequence_example``).

        Elements are ``{"context": {name: value}, "sequences": {name: array of (steps, *shape)}}``. A VarLen sequence
        becomes a :class:`~aiostream_data.formats.sequence_example.RaggedSteps`.

        Args:
            context, sequences: Type and shape of each feature, by name.
            on_error: Error policy for records that do not match the features; see :meth:`map`.

        Raises (when iterated):
            ExampleParseError: A record does not match the features. The error names the URL, record and feature, and
                the expected and actual values.
        """
        parser = SequenceExampleParser(context, sequences)
        name, features = "parse_sequence_example", (*context, *sequences)
        policy_of(on_error)
        return self._then(op.ParseExample, name, decoder=parser, features=features, name=name, on_error=on_error)

    # -- functions

    def _declared(self, operator: str, spec: Any) -> Dataset[T]:
        """Return the dataset whose elements are checked against ``spec``; the dataset itself if ``spec`` is None."""
        if spec is None:
            return self
        from aiostream_data.dataset.declared_specs import spec_call
        from aiostream_data.plan.declared import CheckSpec

        return self._then(CheckSpec, operator, **spec_call(operator, spec))

    @overload
    def map(
        self,
        function: Callable[..., Awaitable[U]],
        *,
        executor: ExecutorName | Auto = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
        init: Callable[[], Any] | None = ...,
        timeout: float | None = ...,
        on_error: OnError = ...,
        spec: Any = ...,
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        function: Callable[..., U],
        *,
        executor: ExecutorName | Auto = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
        init: Callable[[], Any] | None = ...,
        timeout: float | None = ...,
        on_error: OnError = ...,
        spec: Any = ...,
    ) -> Dataset[U]: ...
    def map(
        self,
        function: Callable[..., Any],
        *,
        executor: ExecutorName | Auto = "thread",
        concurrency: Concurrency = AUTO,
        ordered: bool = True,
        batched: bool = False,
        seed: int | None = None,
        init: Callable[[], Any] | None = None,
        timeout: float | None = None,
        on_error: OnError = None,
        spec: Any = None,
    ) -> Dataset[Any]:
        """Apply ``function`` to every element (tf.data ``map``).

        The return value becomes the element, even if the value is None. A plain tuple is passed as separate arguments,
        a dict as one argument. The engine's event loop awaits a coroutine function. A parameter named ``rng`` receives
        a NumPy Generator keyed by seed, epoch and record. The random numbers of ``rng`` do not depend on the executor
        or the number of workers. For a generator function, use :meth:`flat_map`.

        Args:
            executor: Kind of worker: "thread", "process", "inline" (one thread), "interpreter" (Python 3.14) or AUTO.
                AUTO starts with threads, and switches to processes if the function holds the GIL during its calls.
                Consecutive maps and filters with the same executor and concurrency run together in one worker call.
            concurrency: Number of concurrent calls. AUTO chooses the concurrency from the measured duration of a call.
            ordered: If False, emit results in the order in which calls finish.
            batched: If True, pass several rows per call, as arrays whose first axis is the row. The number of rows per
                call varies. The function must return as many rows as it receives.
            seed: Seed of the ``rng`` parameter; the loader's seed by default.
            init: Function that every worker calls once, before the worker's first call of the mapped function. The
                function receives the result of ``init`` in its parameter ``state``. Each worker has its own ``state``.
            timeout: Maximum seconds per call. A longer call fails with
                :class:`~aiostream_data.errors.RecordTimeoutError`; the error policy also applies to this error. After a
                timeout, a call in a process is terminated; a call on a thread continues in the background.
            on_error: Error policy: "raise", "skip", :class:`Retry`, :class:`Skip`, :class:`Replace` or
                :class:`Quarantine`. None uses ``open(on_error=...)``.
            spec: Structure of :class:`ArraySpec` that describes the results, one per leaf. The loader checks every
                result. :attr:`element_spec` then contains the spec, and later operators use it. Error policies do not
                apply to this check. :meth:`infer_spec` returns the spec of the first element.

        Raises:
            StageBuildError: The function cannot be pickled for a process, or is a generator function.
            PlanError: An argument is invalid.

        Raises (when iterated):
            SignatureError: A result does not match ``spec``. A note on the error names the record.
        """
        call = functions.map_call(function, executor, concurrency, ordered, batched, seed, init, timeout, on_error)
        return self._then(op.Map, "map", **call)._declared("map", spec)

    def filter(
        self,
        predicate: Callable[..., bool | Awaitable[bool]],
        *,
        executor: ExecutorName | Auto = "thread",
        concurrency: Concurrency = AUTO,
        seed: int | None = None,
        init: Callable[[], Any] | None = None,
        timeout: float | None = None,
        on_error: OnError = None,
    ) -> Dataset[T]:
        """Keep the elements for which ``predicate`` returns True, in order (tf.data ``filter``).

        The predicate returns a bool. The engine's event loop awaits a coroutine predicate. As in :meth:`map`, a
        parameter named ``rng`` receives a NumPy Generator keyed by seed, epoch and record.

        Args:
            executor, concurrency, seed, init, timeout, on_error: As in :meth:`map`. With ``Replace``, the
                replacement value is used as the predicate's result, so True keeps the element.

        Raises:
            StageBuildError: The predicate cannot be pickled for a process, or is a generator function.
            PlanError: An argument is invalid.
        """
        call = functions.filter_call(predicate, executor, concurrency, seed, init, timeout, on_error)
        return self._then(op.Filter, "filter", **call)

    def scan(self, function: Callable[[Any, T], tuple[Any, U]], initial: Any, *, spec: Any = None) -> Dataset[U]:
        """Emit one output per element, computed from a state and the element (tf.data ``scan``).

        The operator calls ``function(state, element)`` for one element at a time, in order. The function returns the
        next state and the output. In contrast to :meth:`map`, a tuple element is one argument::

            sums = Dataset.range(5).scan(lambda total, number: (total + number, total + number), 0)
            print(list(sums))  # [0, 1, 3, 6, 10]

        :meth:`Loader.state_dict` stores the state of the function, if it takes up to 16 KiB. The state can consist of
        numbers, strings, None, NumPy arrays, and lists, tuples and dicts of these. A resumed run then calls the
        function again for at most 256 elements before the saved position. With any other state, a resumed run
        processes the input again from its beginning. Operators that hold back rows of ``scan``, such as
        :meth:`shuffle`, also process the input again when a run resumes.

        Args:
            function: Function that returns the pair (next state, output). It must depend on its arguments only. It may
                modify the state, but not an output that it returned before.
            initial: State before the first element, of any type. Each pass over the data starts with a copy.
            spec: Spec of the outputs, as in :meth:`map`.

        Raises:
            PlanError: ``function`` is not callable, or is a coroutine function; or ``initial`` cannot be copied. When
                iterated: the function did not return a pair.
            StageBuildError: ``function`` is a generator function, or cannot be called with two arguments.

        Raises (when iterated):
            MemoryBudgetError: The state has grown by more than the memory limit since the first element.
        """
        return self._then(Scan, "scan", **functions.scan_call(function, initial))._declared("scan", spec)

    def aggregate(self, factory: Callable[[], Aggregator[T, U]], *, spec: Any = None) -> Dataset[U]:
        """Emit the outputs of an object that collects elements. tf.data has no such operator.

        Each pass calls ``factory()`` for a new aggregator. The operator calls ``add(element)`` for one element at a
        time, in order, and emits the outputs in the returned iterable. After the last element, it emits the outputs of
        ``flush()``. Without an element, it does not call ``flush()``. A tuple element is one argument::

            class Lines:
                def __init__(self):
                    self.words = []

                def add(self, word):
                    self.words.append(word)
                    return self.flush() if len(self.words) == 3 else []

                def flush(self):
                    words, self.words = self.words, []
                    return [" ".join(words)] if words else []

            words = Dataset.from_list(["to", "be", "or", "not"])
            print(list(words.aggregate(Lines)))  # ['to be or', 'not']

        With the methods ``state()`` and ``restore(state)``, :meth:`Loader.state_dict` stores the state of the
        aggregator, if it takes up to 16 KiB. The state can consist of numbers, strings, None, NumPy arrays, and lists,
        tuples and dicts of these. A resumed run then adds at most 256 elements again. Without these methods, or with
        any other state, a resumed run processes the input again from its beginning. Operators that hold back outputs,
        such as :meth:`shuffle`, also process the input again.

        Args:
            factory: Class or function that returns an aggregator. Its outputs must depend on the elements only. It must
                not modify an output that it returned before.
            spec: Spec of the outputs, as in :meth:`map`.

        Raises:
            PlanError: ``factory`` is not callable, or is a coroutine function. When iterated: the aggregator lacks a
                method, or a method did not return an iterable.
            StageBuildError: ``factory`` is a generator function, or requires arguments.

        Raises (when iterated):
            MemoryBudgetError: The aggregator has grown by more than the memory limit since it was made.
        """
        from aiostream_data.plan.aggregate import Aggregate

        made = self._then(Aggregate, "aggregate", factory=functions.checked_factory(factory))
        return made._declared("aggregate", spec)

    def unique(
        self, key: Callable[..., Any] | None = None, *, spill: bool | str | os.PathLike[str] = False
    ) -> Dataset[T]:
        """Keep the first element with each key, in order (tf.data ``unique``).

        Keys are numbers, strings, bytes, None, or tuples of these. They are equal as in Python, so 1 and 1.0 are the
        same key; all NaNs are the same key. Strings and bytes longer than 64 are compared by a 128-bit hash.

        The operator keeps all keys in memory, about 100 to 200 bytes per key. The keys count against the memory limit
        and may take half of it. A saved state contains up to 1,024 keys of up to 16 KiB together. With more keys, a
        resumed run reads the input again from its beginning.

        Args:
            key: Function that returns the key of an element. A tuple element is passed as separate arguments. If None,
                the element itself is the key.
            spill: If True, write a 128-bit hash of each key to a temporary file when the keys exceed one eighth of the
                loader's ``memory_limit``. A path selects the folder of that file. The file takes about 40 bytes per key
                and is deleted when the process ends. The elements do not change. The operator then processes about
                100,000 to 300,000 elements per second.

        Raises:
            PlanError: ``key`` is not callable, or is a coroutine function. When iterated: a key has another type.
            StageBuildError: ``key`` is a generator function, or cannot be called with an element.
            MemoryBudgetError (when iterated): The keys take more than half of the memory limit, without ``spill``.
            SpillError (when opened or iterated): The folder does not exist, or the disk is full.
        """
        return self._then(Unique, "unique", key=functions.checked_key(key), spill=spill_of(spill))

    def take_while(self, predicate: Callable[..., bool]) -> Dataset[T]:
        """Emit elements until ``predicate`` returns False for an element (tf.data ``take_while``).

        The input may be infinite, because the operator stops reading at the first element for which the predicate
        returns False. The operator calls the predicate for one element at a time, in order. The predicate must return a
        bool. A tuple element is passed to the predicate as separate arguments. The predicate's result must depend only
        on the element, because a resumed run calls the predicate again for the element that ended the stream.

        Raises:
            PlanError: The predicate is not callable, or is a coroutine function.
            StageBuildError: The predicate is a generator function, or cannot be called with an element.
        """
        return self._then(TakeWhile, "take_while", predicate=functions.checked_predicate(predicate))

    def flat_map(
        self,
        function: Callable[..., Dataset[U] | Iterable[U] | AsyncIterable[U]],
        *,
        executor: Literal["thread", "process", "inline"] = "thread",
        concurrency: Concurrency = 1,
        on_error: OnError = None,
        spec: Any = None,
    ) -> Dataset[U]:
        """Emit all elements of each dataset that ``function`` returns, in sequence (tf.data ``flat_map``).

        The function may also return any sync or async iterable, or be a generator function.

        Args:
            executor: Kind of worker that calls ``function``: "thread", "process" or "inline" (one call at a time). The
                returned datasets run in this process. If ``function`` returns an iterator, a worker process reads it to
                its end, and sends all items at once.
            concurrency: Number of concurrent calls; AUTO for the number of CPUs. The order of elements and saved states
                do not depend on the executor or the concurrency.
            on_error: Error policy for elements for which ``function`` raises an error; see :meth:`map`. The policy does
                not cover errors while reading the returned dataset.
            spec: Spec of the emitted elements, as in :meth:`map`.

        Raises:
            StageBuildError: The function cannot be pickled for a process.
            PlanError: An argument is invalid.
        """
        call = functions.interleave_call("flat_map", function, on_error, executor=executor, concurrency=concurrency)
        return self._then(op.Interleave, "flat_map", **call)._declared("flat_map", spec)

    def index_flat_map(
        self,
        function: Callable[..., ReturnedRows[U]],
        index_map: Callable[[int], tuple[int, int]],
        cardinality: int,
        *,
        concurrency: Concurrency = 1,
    ) -> Dataset[U]:
        """Emit the rows that ``function`` returns for each element, computed from their numbers (``index_flat_map``).

        A :meth:`flat_map` whose rows can be read in any order. A :meth:`shuffle` without a number behind it permutes
        all rows without a buffer. Without a shuffle and with the default concurrency, ``function`` is called once for
        each element, in order.

        For example, three rows of each element::

            dataset = Dataset.from_list(texts).index_flat_map(three_parts, lambda n: divmod(n, 3), 3 * len(texts))

        Args:
            function: Function that returns a list, tuple or array of rows. A tuple element is passed as separate
                arguments. The result must depend only on the element.
            index_map: Function that returns the place of row ``n``: the index of its element, and of the row in the
                result of ``function``.
            cardinality: Number of rows of the result.
            concurrency: Number of concurrent calls, as in :meth:`map`. The order of the rows does not depend on it.

        Raises:
            PlanError: The dataset is not in memory or has operators, a function is not callable, or ``cardinality`` is
                not an integer of at least 0. When iterated: ``index_map`` returns a place that does not exist, or
                ``function`` returns another type.
            StageBuildError: A function is a generator function, or cannot be called with one argument.
        """
        check_in_memory(self.plan)
        for each in (function, index_map):
            functions.checked_function("index_flat_map", each)
        numbers = Dataset.range(integer("cardinality", cardinality, 0))
        rows = IndexedRows(self.plan, function, index_map)
        return Dataset(numbers.plan, self.carried_options).map(rows, concurrency=concurrency)

    def interleave(
        self,
        function: Callable[..., Dataset[U] | Iterable[U] | AsyncIterable[U]],
        *,
        cycle_length: int | Auto = AUTO,
        block_length: int = 1,
        ordered: bool = True,
        executor: Literal["thread", "process", "inline"] = "thread",
        concurrency: Concurrency = 1,
        on_error: OnError = None,
        spec: Any = None,
    ) -> Dataset[U]:
        """Interleave the elements of the datasets that ``function`` returns (tf.data ``interleave``).

        The operator takes up to ``block_length`` elements from each open dataset in turn. When it is the turn of an
        exhausted dataset, the operator replaces this dataset with the next one.

        Args:
            cycle_length: Number of datasets that are open at the same time.
            block_length: Number of consecutive elements from one dataset.
            ordered: If False, take elements from any dataset whose elements are ready.
            executor, concurrency: As in :meth:`flat_map`.
            on_error: Error policy for elements for which ``function`` raises an error; see :meth:`map`. The policy does
                not cover errors while reading the returned dataset.
            spec: Spec of the emitted elements, as in :meth:`map`.

        Raises:
            StageBuildError: The function cannot be pickled for a process.
            PlanError: An argument is invalid.
        """
        order = cycle_length, block_length, ordered
        call = functions.interleave_call("interleave", function, on_error, *order, executor, concurrency)
        return self._then(op.Interleave, "interleave", **call)._declared("interleave", spec)

    def rejection_resample(
        self,
        class_fn: Callable[..., int],
        target: Sequence[float] | NDArray[Any],
        initial: Sequence[float] | NDArray[Any] | None = None,
        *,
        seed: int | None = None,
    ) -> Dataset[tuple[int, T]]:
        """Drop elements at random, so that classes have the distribution ``target`` (tf.data ``rejection_resample``).

        The elements become pairs (class, element), as in tf.data; the class is an int64. The draw for an element
        depends only on the seed, the epoch and the origin of the element. Elements keep their order.

        An element of class c is kept with the probability ``target[c] / initial[c]``, divided by the largest of these
        ratios. Unlike tf.data, the operator reads its input only once, so no element is emitted twice.

        Args:
            class_fn: Function that returns the class of an element: an integer from 0 to ``len(target) - 1``. The
                function receives a tuple element as separate arguments.
            target: Weight of each class in the output. The weights need not have the sum 1.
            initial: Weight of each class in the input. By default, the operator counts the classes of all elements up
                to the current one, plus 10 elements of each class.
            seed: Seed of this operator; the loader's seed by default.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            PlanError: ``class_fn`` did not return a class. A note on the error names the record.
        """
        from aiostream_data.dataset.resampling import resample_call
        from aiostream_data.plan.resampling import RejectionResample

        call = resample_call(class_fn, target, initial, seed)
        return self._then(RejectionResample, "rejection_resample", **call)

    # -- batches

    # Only Any matches Never: batches of elements of unknown type get an unknown type, not that of the first overload.
    @overload
    def batch(self: Dataset[Never], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[Any]: ...
    @overload
    def batch(self: Dataset[dict[A, Any]], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[dict[A, Any]]: ...
    @overload
    def batch(self: Dataset[int], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[NDArray[np.int64]]: ...
    @overload
    def batch(self: Dataset[float], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[NDArray[np.float64]]: ...
    @overload
    def batch(self: Dataset[Text], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[NDArray[np.object_]]: ...
    @overload
    def batch(self: Dataset[S], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[NDArray[S]]: ...
    @overload
    def batch(self: Dataset[NDArray[S]], batch_size: int, *, drop_remainder: bool = ...) -> Dataset[NDArray[S]]: ...
    @overload
    def batch(
        self: Dataset[tuple[int, int]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[np.int64], NDArray[np.int64]]]: ...
    @overload
    def batch(
        self: Dataset[tuple[Text, int]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[np.object_], NDArray[np.int64]]]: ...
    @overload
    def batch(
        self: Dataset[tuple[NDArray[S], int]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[S], NDArray[np.int64]]]: ...
    @overload
    def batch(
        self: Dataset[tuple[int, NDArray[S]]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[np.int64], NDArray[S]]]: ...
    @overload
    def batch(
        self: Dataset[tuple[NDArray[S], NDArray[Q]]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[NDArray[S], NDArray[Q]]]: ...
    @overload
    def batch(
        self: Dataset[tuple[A, E]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[Any, Any]]: ...
    @overload
    def batch(
        self: Dataset[tuple[A, E, F]], batch_size: int, *, drop_remainder: bool = ...
    ) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    def batch(self, batch_size: int, *, drop_remainder: bool = ...) -> Dataset[T]: ...
    @overload
    def batch(self, batch_size: int, *, strings: Strings, drop_remainder: bool = ...) -> Dataset[Any]: ...
    @overload
    def batch(self, batch_size: int, *, collate: Callable[[list[T]], U], drop_remainder: bool = ...) -> Dataset[U]: ...
    @overload
    def batch(
        self,
        batch_size: int | None = ...,
        *,
        max_cost: int,
        cost: Callable[..., int] | str | None = ...,
        padded: bool = ...,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        on_too_large: TooLarge = ...,
        drop_remainder: bool = ...,
    ) -> Dataset[Any]: ...
    def batch(
        self,
        batch_size: int | None = None,
        *,
        max_cost: int | None = None,
        cost: Callable[..., int] | str | None = None,
        padded: bool = True,
        padded_shapes: Any = None,
        padding_values: Any = None,
        on_too_large: TooLarge = "raise",
        drop_remainder: bool = False,
        strings: Strings = "objects",
        collate: Callable[[list[T]], Any] | None = None,
    ) -> Dataset[Any]:
        """Stack ``batch_size`` consecutive elements (tf.data ``batch``), or as many elements as ``max_cost`` allows.

        Numbers and arrays become arrays whose first axis is the row. Bytes and str become object arrays, or what
        ``strings`` selects. Features of type VarLen or Ragged become a :class:`RaggedArray`. Batches own their memory.

        With ``max_cost``, a batch ends before the element that would make the batch's cost exceed ``max_cost``. Use
        ``max_cost`` if the model's memory depends on the size of the elements, not on their number. With ``max_cost``,
        batches are padded in the same way as in :meth:`padded_batch`. The cost of a padded batch is the number of rows
        multiplied by the largest cost of a row.

        Args:
            batch_size: Number of elements in a batch. With ``max_cost``, the maximum number of elements in a batch;
                None means no maximum.
            max_cost: Maximum cost of a batch, in the unit of ``cost``. Only ``on_too_large="alone"`` exceeds it.
            cost: Function that returns the cost of an element as an integer >= 0. The function receives a tuple element
                as separate arguments. Alternatively, pass the name of a leaf (array): the cost is the leaf's length,
                which takes no time to compute. By default, the cost is the length of the only leaf that has a length.
                If ``padded_shapes`` sets a fixed length for that leaf, the cost is this fixed length.
            padded: If False, stack elements without padding. The cost of a batch is then the sum of the costs of its
                rows.
            padded_shapes, padding_values: As for :meth:`padded_batch`.
            on_too_large: Action for a single element that costs more than ``max_cost``: "raise" raises an error; "skip"
                drops and counts the element; "alone" emits the element as a batch of one row.
            drop_remainder: If True, drop an incomplete last batch. With ``max_cost``, a batch is full if another
                element of cost 1 would not fit.
            strings: Form of bytes and text in the batch, not with ``max_cost``. "objects": an object array, with None
                for a missing value. "columns": a :class:`BytesArray` or :class:`TextArray` without Python objects,
                which Arrow, Polars and DuckDB read without a copy. "string_dtype": text as ``numpy.dtypes.StringDType``
                (NumPy 2), bytes as objects. "ragged": a :class:`RaggedArray` of uint8. "padded": a uint8 array of shape
                (rows, longest row), with 0 after the end of shorter rows. Text becomes UTF-8.
            collate: Plain function that makes the batch, in place of stacking. The function receives the list of the
                elements of the batch, and its result becomes the element. The function may keep and modify their
                arrays. Not with ``max_cost`` or ``strings``; PyTorch's ``collate_fn`` is such a function.

        Raises:
            PlanError: An argument is invalid, or the cost of an element is undefined.
            StageBuildError: ``collate`` is a generator function, or does not accept a list.

        Raises (when iterated):
            BatchShapeError: The shapes or structures of two elements differ, or a value is missing. The error names the
                records and their shapes.
            BatchCostError: The cost of a single element exceeds ``max_cost``. The error names the record.
            PlanError: ``cost`` did not return an integer >= 0. A note on the error names the record.
        """
        for name, value in (("drop_remainder", drop_remainder), ("padded", padded)):
            flag(name, value)
        rows = None if batch_size is None else at_least("batch_size", batch_size, 1)
        form = batches.checked_strings("batch", strings, max_cost)
        if collate is not None:
            from aiostream_data.plan.collated import CollatedBatch

            batches.check_collate(collate, (max_cost, form))
            rows = batches.checked_rows(rows, (cost, padded_shapes, padding_values), on_too_large)
            return self._then(CollatedBatch, "batch", batch_size=rows, collate=collate, drop_remainder=drop_remainder)
        if max_cost is None:
            rows = batches.checked_rows(rows, (cost, padded_shapes, padding_values), on_too_large)
            return self._then(op.Batch, "batch", batch_size=rows, drop_remainder=drop_remainder, strings=form)
        from aiostream_data.plan.costs import CostBatch

        return self._then(
            CostBatch,
            "batch",
            max_cost=batches.checked_limit(max_cost, on_too_large),
            cost=batches.checked_cost(self.plan, cost, padded, padded_shapes, padding_values),
            padded=padded,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            on_too_large=on_too_large,
            batch_size=rows,
            drop_remainder=drop_remainder,
        )

    @overload
    def unbatch(self: Dataset[list[U]]) -> Dataset[U]: ...
    @overload
    def unbatch(self: Dataset[dict[A, Any]]) -> Dataset[dict[A, Any]]: ...
    @overload
    def unbatch(self) -> Dataset[Any]: ...
    def unbatch(self) -> Dataset[Any]:
        """Split every element along its first axis, and emit the rows (tf.data ``unbatch``)."""
        return self._then(op.Unbatch, "unbatch")

    # -- windows

    @overload
    def padded_batch(
        self: Dataset[Never],
        batch_size: int,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        *,
        drop_remainder: bool = ...,
    ) -> Dataset[Any]: ...
    @overload
    def padded_batch(
        self: Dataset[dict[A, Any]],
        batch_size: int,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        *,
        drop_remainder: bool = ...,
    ) -> Dataset[dict[A, Any]]: ...
    @overload
    def padded_batch(
        self: Dataset[int],
        batch_size: int,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        *,
        drop_remainder: bool = ...,
    ) -> Dataset[NDArray[np.int64]]: ...
    @overload
    def padded_batch(
        self: Dataset[NDArray[S]],
        batch_size: int,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        *,
        drop_remainder: bool = ...,
    ) -> Dataset[NDArray[S]]: ...
    @overload
    def padded_batch(
        self, batch_size: int, padded_shapes: Any = ..., padding_values: Any = ..., *, drop_remainder: bool = ...
    ) -> Dataset[Any]: ...
    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Stack ``batch_size`` consecutive elements and pad the shorter elements (tf.data ``padded_batch``).

        Unlike in tf.data, ``padded_shapes`` is always optional, because a NumPy array stores its number of axes.

        Args:
            batch_size: Number of elements in a batch.
            padded_shapes: A sequence of lengths for each leaf (array), in the structure of the elements, or one length
                for a leaf with one axis. None or -1 in a sequence means the length of the longest row in the batch. To
                pad every axis to the longest row, pass None instead of a sequence, or for the complete argument.
            padding_values: One value for all leaves, or a structure with one value per leaf. The default padding value
                is 0 or the empty string. A text leaf whose rows are all empty is padded with b"".
            drop_remainder: If True, drop an incomplete last batch.

        Raises:
            PlanError: Padded shapes or padding values do not match the known element structure.

        Raises (when iterated):
            BatchShapeError: A row is larger than its padded shape, or rows differ in dtype or number of axes. The error
                names the record.
        """
        from aiostream_data.plan.windows import PaddedBatch

        check_padding(self.plan, padded_shapes, padding_values)
        return self._then(
            PaddedBatch,
            "padded_batch",
            batch_size=at_least("batch_size", batch_size, 1),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    @overload
    def rebatch(self, batch_size: int | Sequence[int], *, drop_remainder: bool = ...) -> Dataset[T]: ...
    @overload
    def rebatch(
        self, batch_size: int | Sequence[int], *, strings: Strings, drop_remainder: bool = ...
    ) -> Dataset[Any]: ...
    def rebatch(
        self, batch_size: int | Sequence[int], *, drop_remainder: bool = False, strings: Strings = "objects"
    ) -> Dataset[Any]:
        """Change the batch size, like ``unbatch().batch(batch_size)`` (tf.data ``rebatch``).

        Args:
            batch_size: One batch size, or several batch sizes that repeat in a cycle.
            drop_remainder: If True, drop an incomplete last batch.
            strings: Form of bytes and text in the batch, as for :meth:`batch`. Pass it here even if the earlier batches
                have this form.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            BatchShapeError: The shapes or structures of two rows differ, or a value is missing. The error names the
                records and their shapes.
        """
        from aiostream_data.plan.windows import Rebatch

        sizes = windows.checked_sizes(batch_size)
        form = batches.checked_strings("rebatch", strings)
        return self.unbatch()._then(
            Rebatch, "rebatch", sizes=sizes, drop_remainder=flag("drop_remainder", drop_remainder), strings=form
        )

    def ragged_batch(self, batch_size: int, *, drop_remainder: bool = False) -> Dataset[Any]:
        """Batch elements of different lengths without padding (tf.data ``ragged_batch``).

        Arrays become a :class:`RaggedArray`, whose rows may differ in their first axis. The type does not depend on the
        data: arrays of equal lengths also become a RaggedArray, unless :attr:`element_spec` contains their shape.
        Numbers, bytes and text become arrays as in :meth:`batch`.

        Args:
            batch_size: Number of elements in a batch.
            drop_remainder: If True, drop an incomplete last batch.

        Raises (when iterated):
            BatchShapeError: The rows of an array differ in dtype or number of axes, or in an axis after the first. The
                error names the records and their shapes.
        """
        from aiostream_data.plan.uneven_batches import RaggedBatch, dense_leaves

        return self._then(
            RaggedBatch,
            "ragged_batch",
            batch_size=at_least("batch_size", batch_size, 1),
            drop_remainder=flag("drop_remainder", drop_remainder),
            dense=dense_leaves(spec_of(self.plan)),
        )

    def sparse_batch(
        self, batch_size: int, row_shape: Sequence[int | None], *, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Batch arrays of different shapes as sparse arrays of SciPy (tf.data ``sparse_batch``).

        Each element must be one array of numbers. A batch contains all values of its rows, zeros included, as in
        tf.data. Rows with one axis become a ``scipy.sparse.csr_array``; rows with more axes become a ``coo_array`` with
        as many axes plus one, which needs SciPy 1.15.

        Args:
            batch_size: Number of elements in a batch.
            row_shape: Shape of a row of the batch, at least as large as each element. An axis of None or -1 has the
                length of the longest row of the batch.
            drop_remainder: If True, drop an incomplete last batch.

        Raises:
            PlanError: An argument is invalid.
            MissingExtraError: SciPy is not installed (extra ``sparse``).

        Raises (when iterated):
            BatchShapeError: An element is not an array of numbers, has other axes than ``row_shape``, is larger, or has
                another dtype. The error names the record.
        """
        from aiostream_data.plan.uneven_batches import SparseBatch

        return self._then(
            SparseBatch,
            "sparse_batch",
            batch_size=at_least("batch_size", batch_size, 1),
            row_shape=batches.checked_row_shape(row_shape),
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    @overload
    def window(
        self: Dataset[Never], size: int, shift: int | None = ..., stride: int = ..., *, drop_remainder: bool = ...
    ) -> Dataset[Any]: ...
    @overload
    def window(
        self: Dataset[dict[A, Any]],
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        *,
        drop_remainder: bool = ...,
    ) -> Dataset[dict[A, Any]]: ...
    @overload
    def window(
        self: Dataset[int], size: int, shift: int | None = ..., stride: int = ..., *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[np.int64]]: ...
    @overload
    def window(
        self: Dataset[NDArray[S]], size: int, shift: int | None = ..., stride: int = ..., *, drop_remainder: bool = ...
    ) -> Dataset[NDArray[S]]: ...
    @overload
    def window(
        self: Dataset[int],
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        *,
        drop_remainder: bool = ...,
        as_datasets: Literal[True],
    ) -> Dataset[Dataset[int]]: ...
    @overload
    def window(
        self: Dataset[NDArray[S]],
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        *,
        drop_remainder: bool = ...,
        as_datasets: Literal[True],
    ) -> Dataset[Dataset[NDArray[S]]]: ...
    @overload
    def window(
        self: Dataset[dict[A, Any]],
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        *,
        drop_remainder: bool = ...,
        as_datasets: Literal[True],
    ) -> Dataset[dict[A, Dataset[Any]]]: ...
    @overload
    def window(
        self,
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        *,
        drop_remainder: bool = ...,
        as_datasets: bool = ...,
    ) -> Dataset[Any]: ...
    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        *,
        drop_remainder: bool = False,
        as_datasets: bool = False,
    ) -> Dataset[Any]:
        """Stack windows of ``size`` elements (tf.data ``window``).

        The elements of a window are stacked as in a batch. With ``as_datasets``, each leaf of a window is a dataset, as
        in tf.data, so elements may differ in shape. The operator reads and discards elements between two windows, but
        still raises errors in these elements.

        Args:
            size: Number of elements in a window.
            shift: Distance between the starts of two windows, in elements; ``size`` by default.
            stride: Distance between two consecutive elements of a window, counted in input elements.
            drop_remainder: If True, drop incomplete windows at the end.
            as_datasets: If True, emit a dataset for each leaf of the elements. Use :meth:`flat_map` to process these
                datasets, such as ``flat_map(lambda window: window.padded_batch(3))``.

        Raises (when iterated):
            BatchShapeError: The shapes or structures of two elements in a window differ. The error names the two
                records and their shapes.
        """
        from aiostream_data.plan.windows import Window

        length = at_least("size", size, 1)
        return self._then(
            Window,
            "window",
            size=length,
            shift=length if shift is None else at_least("shift", shift, 1),
            stride=at_least("stride", stride, 1),
            drop_remainder=flag("drop_remainder", drop_remainder),
            as_datasets=flag("as_datasets", as_datasets),
            dataset_class=Dataset if as_datasets else None,
        )

    def bucket_by_sequence_length(
        self,
        element_length: Callable[..., int] | str,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int] | None = None,
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        max_cost: int | None = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Batch elements of similar length and pad shorter elements (tf.data ``bucket_by_sequence_length``).

        Bucket i collects elements with lengths from ``bucket_boundaries[i - 1]`` to below ``bucket_boundaries[i]``.
        When a bucket is full, the operator emits the bucket's elements as a batch. At the end, the operator emits the
        remaining elements of each bucket as a batch, in the order of the buckets.

        Args:
            element_length: Function that returns the length of an element. The function receives a tuple element as
                separate arguments. Alternatively, pass the name of a leaf (array): the length of this leaf is used,
                which takes no time to compute.
            bucket_boundaries: Boundaries between the lengths of two buckets, in ascending order.
            bucket_batch_sizes: One batch size per bucket; the number of buckets is the number of boundaries plus one.
                Omit this argument if you pass ``max_cost``.
            max_cost: Maximum cost of a batch. The cost is the number of rows multiplied by the longest row length that
                the bucket allows. The batch size of a bucket is ``max_cost / (upper boundary - 1)``, rounded down. An
                element whose length reaches the last boundary raises an error.
            padded_shapes, padding_values: As for :meth:`padded_batch`.
            pad_to_bucket_boundary: If True, pad every axis without a fixed length to the bucket's upper boundary minus
                1, not to the longest row. An element whose length reaches the last boundary raises an error. This
                option needs ``padded_shapes`` if the element shapes are unknown.
            no_padding: If True, stack elements without padding, as ``batch`` does.
            drop_remainder: If True, drop incomplete batches at the end.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            BatchShapeError: As for :meth:`padded_batch`. With ``max_cost`` or ``pad_to_bucket_boundary``, the operator
                also raises this error if the length of an element reaches the last boundary.
        """
        from aiostream_data.plan.windows import Bucket

        bounds, sizes = windows.checked_buckets(bucket_boundaries, bucket_batch_sizes, max_cost)
        check_length_of(self.plan, "element_length", element_length)
        shapes = windows.checked_bucket_shapes(
            self.plan, padded_shapes, padding_values, no_padding, pad_to_bucket_boundary
        )
        return self._then(
            Bucket,
            "bucket_by_sequence_length",
            element_length=element_length,
            boundaries=bounds,
            batch_sizes=sizes,
            max_cost=max_cost,
            padded_shapes=shapes,
            padding_values=padding_values,
            padding=not no_padding,
            pad_to_boundary=pad_to_bucket_boundary,
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def pack(
        self,
        max_length: int,
        *,
        fields: str | Sequence[str] | None = None,
        open_bins: int = OPEN_BINS,
        too_long: TooLong = "error",
        padding_values: Any = None,
    ) -> Dataset[dict[str, Any]]:
        """Pack several elements of different lengths into each row of ``max_length`` values, without cutting elements.

        Packing reduces padding in training on sequences. The operator places each element in the first open row with
        enough free space. If no open row has enough space, the operator emits the fullest row and opens a new row.
        TensorFlow's tf.data has no packing operator; Grain and T5 produce similar packed rows.

        Each row is a dict of the packed leaves (arrays) with ``max_length`` values each. If elements are not dicts, the
        leaf is named ``"values"``. The leaf ``"segment_ids"`` (int32) numbers the elements of a row from 1; the number
        0 marks padding. The leaf ``"positions"`` (int32) contains the index of each value in its element. The operator
        drops elements without values. Leaves keep all axes after the first.

        Args:
            max_length: Number of values in a row.
            fields: Names of the leaves (arrays) to pack; the operator drops other leaves. By default, the operator
                packs all leaves. The packed leaves of an element must have equal lengths.
            open_bins: Number of rows that are open at the same time. More open rows waste less space but buffer more
                elements. With one open row, the elements keep their order.
            too_long: Action for an element longer than ``max_length``: "error", "split", "truncate" or "drop". With
                "split", each piece counts as an element.
            padding_values: One value for all leaves, or a dict with one value per leaf; 0 by default.

        Raises:
            PlanError: An argument is invalid.

        Raises (when iterated):
            BatchShapeError: A leaf is not an array, leaves of an element differ in length, or an element is too long.
                The error names the record.
        """
        from aiostream_data.plan.windows import Pack

        names = windows.checked_fields(fields, too_long)
        width, bins = at_least("max_length", max_length, 1), at_least("open_bins", open_bins, 1)
        check_packing(self.plan, names, padding_values)
        return self._then(
            Pack,
            "pack",
            max_length=width,
            fields=names,
            open_bins=bins,
            too_long=too_long,
            padding_values=padding_values,
        )

    # -- groups of equal keys

    def group_by_window(
        self,
        key: Callable[..., Any],
        reduce: Callable[[Any, Dataset[T]], Dataset[U] | Iterable[U] | AsyncIterable[U]],
        window_size: int | None = None,
        *,
        window_size_fn: Callable[[Any], int] | None = None,
    ) -> Dataset[U]:
        """Collect windows of elements with equal keys, and emit what a function makes of them (tf.data
        ``group_by_window``).

        When a key has ``window_size`` elements, the operator calls ``reduce(key, window)`` and emits all elements of
        the result. At the end, the operator does this for all incomplete windows, in the ascending order of their keys.
        A key is not limited to int64, in contrast to tf.data::

            dataset.group_by_window(lambda row: row["length"] // 8, lambda key, window: window.batch(32), 32)

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            reduce: Plain function of the key and of a dataset of the window's elements. It returns a dataset or any
                iterable. Arrays of the window are read-only.
            window_size: Number of elements in a window. Pass either ``window_size`` or ``window_size_fn``.
            window_size_fn: Function that returns the window size of a key. The loader calls it once for each key.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: A key is not hashable or has no order, or ``window_size_fn`` did not return an integer of at
                least 1. A note on the error names the record.
            MemoryBudgetError: The elements of incomplete windows do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import KeyedWindows, ReduceWindows

        sizes = keyed_groups.window_sizes(key, window_size, window_size_fn)
        call = functions.interleave_call("group_by_window", reduce, None)
        windows = self._then(KeyedWindows, "group_by_window", key=key, dataset=Dataset, **sizes)
        return windows._then(ReduceWindows, "group_by_window", function=call["function"])

    @overload
    def split_by(
        self,
        key: Callable[..., Any],
        branches: Mapping[A, Callable[[Dataset[T]], Dataset[U]]],
        window_size: int | None = ...,
        *,
        default: Callable[[Dataset[T]], Dataset[U]] | None = ...,
    ) -> Dataset[U]: ...
    @overload
    def split_by(
        self,
        key: Callable[..., Any],
        branches: Mapping[Any, Callable[[Dataset[T]], Dataset[Any]]],
        window_size: int | None = ...,
        *,
        default: Callable[[Dataset[T]], Dataset[Any]] | None = ...,
    ) -> Dataset[Any]: ...
    def split_by(
        self,
        key: Callable[..., Any],
        branches: Mapping[Any, Callable[[Dataset[T]], Dataset[Any]]],
        window_size: int | None = None,
        *,
        default: Callable[[Dataset[T]], Dataset[Any]] | None = None,
    ) -> Dataset[Any]:
        """Send each element to the branch of its key, and emit the results of all branches. tf.data has no such
        operator.

        A branch is a chain of operators. The operator applies the chain to each window of ``window_size`` elements of
        the branch, as :meth:`group_by_window` does. Operators such as ``batch`` and ``shuffle`` therefore begin again
        with each window. Results are emitted when the window of a branch is full; at the end, the incomplete windows
        follow in the order of ``branches``::

            chains = {"image": lambda rows: rows.map(crop), "text": lambda rows: rows.map(tokenize).batch(8)}
            dataset.split_by(lambda row: row["kind"], chains, window_size=64)

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            branches: Chain of each key: a function from dataset to dataset.
            window_size: Number of elements in a window. With None, a window contains all elements of the branch: the
                results are emitted at the end, branch by branch, and all elements must fit into the memory limit. With
                1, the results are in the order of the input, but each element costs a call of its chain.
            default: Chain for the elements with all other keys, as the last branch. None raises an error for them.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: An element has a key without a branch. A note on the error names the record.
            MemoryBudgetError: The elements of incomplete windows do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import ReduceWindows, SplitWindows

        split = keyed_groups.split(key, branches, window_size, default)
        windows = self._then(SplitWindows, "split_by", dataset=Dataset, **split.arguments)
        return windows._then(ReduceWindows, "split_by", function=split.function, name="split_by")

    @overload
    def group_by_reducer(
        self,
        key: Callable[..., Any],
        init: Callable[[Any], A],
        reduce: Callable[[A, T], A],
        finalize: None = ...,
    ) -> Dataset[A]: ...
    @overload
    def group_by_reducer(
        self,
        key: Callable[..., Any],
        init: Callable[[Any], A],
        reduce: Callable[[A, T], A],
        finalize: Callable[[A], U],
    ) -> Dataset[U]: ...
    def group_by_reducer(
        self,
        key: Callable[..., Any],
        init: Callable[[Any], A],
        reduce: Callable[[A, T], A],
        finalize: Callable[[A], Any] | None = None,
    ) -> Dataset[Any]:
        """Reduce all elements with equal keys to one result per key (tf.data ``group_by_reducer``).

        The operator emits ``finalize(state)`` of each key at the end of its input, in the ascending order of the keys.
        A resumed run reads the input again from its beginning.

        Args:
            key: Plain function that returns the key of an element. A tuple element is passed as separate arguments.
            init: Function of the key that returns the first state. The state can be any object.
            reduce: Function ``(state, element)`` that returns the next state. The element is passed as it is.
            finalize: Function of the last state that returns the result; None to emit the state.

        Raises:
            PlanError: An argument is invalid.
            StageBuildError: A function cannot be called with its arguments.

        Raises (when iterated):
            PlanError: A key is not hashable or has no order. A note on the error names the record.
            MemoryBudgetError: The states of all keys do not fit into the memory limit.
        """
        from aiostream_data.plan.keyed import GroupByReducer

        keyed_groups.check_reducer(key, init, reduce, finalize)
        return self._then(GroupByReducer, "group_by_reducer", key=key, init=init, reduce=reduce, finalize=finalize)

    # -- order

    def shuffle(
        self,
        buffer_size: int | Auto = AUTO,
        *,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        spill: bool | str | os.PathLike[str] = False,
    ) -> Dataset[T]:
        """Shuffle the elements (tf.data ``shuffle``).

        The shuffled order depends only on the seed, the epoch and the order of the input. With a number as
        ``buffer_size``, the operator fills a buffer. Then the operator repeatedly emits a random element of the buffer
        and replaces that element with the next input element. With AUTO, the shuffling method depends on the source;
        :meth:`explain` reports the chosen method. For arrays, ranges and sources with one element per file, AUTO
        permutes all elements, without a buffer. For files of records, AUTO reads many files at once in random order,
        through a growing buffer. A number is treated as AUTO if the buffer has room for all elements of an array or
        range directly before it, unless ``spill`` is set.

        Args:
            buffer_size: Number of elements in the buffer. AUTO limits the buffer to 8,192 elements or 128 MiB.
            seed: Seed of this operator; the loader's seed by default.
            reshuffle_each_iteration: If False, use the same order in every epoch.
            spill: If True, write buffered rows to a temporary file when these rows exceed one eighth of the loader's
                ``memory_limit``. A path selects the folder of that file. Spilling does not change the order or the
                saved states. The spill file has no name, uses up to twice the size of the buffered rows, and is deleted
                when the process ends. With AUTO, spilling allows a buffer of 128 MiB even if ``memory_limit`` is
                smaller.

        Raises (when opened or iterated):
            SpillError: The folder does not exist, the disk is full, or spilled rows are damaged.
        """
        return self._then(
            op.Shuffle,
            "shuffle",
            buffer_size=auto_or_at_least_one("buffer_size", buffer_size),
            seed=seed_of(seed),
            reshuffle_each_iteration=flag("reshuffle_each_iteration", reshuffle_each_iteration),
            spill=spill_of(spill),
        )

    def repeat(self, count: int | None = None) -> Dataset[T]:
        """Repeat the elements ``count`` times, or forever if ``count`` is None or -1 (tf.data ``repeat``).

        The next epoch starts reading before the current epoch ends, but elements of two epochs never mix. Functions of
        :meth:`map` may be called for elements of two epochs at the same time.

        Raises:
            StageBuildError: The source of the dataset can be read only once.
        """
        endless = count is None or (isinstance(count, int) and count == -1)
        times = None if endless else at_least("count", count, 0)
        repeated: Dataset[T] = self._then(op.Repeat, "repeat", count=times)
        assert isinstance(repeated.plan, op.Repeat)
        check_repeat(repeated.plan)
        return repeated

    def take(self, count: int) -> Dataset[T]:
        """Keep the first ``count`` elements, or all elements if ``count`` is -1 (tf.data ``take``)."""
        return self._then(op.Take, "take", count=at_least("count", count, -1))

    def skip(self, count: int) -> Dataset[T]:
        """Skip the first ``count`` elements, or all elements if ``count`` is -1 (tf.data ``skip``).

        With -1, nothing is read, so the input may be infinite.
        """
        return self._then(op.SkipFirst, "skip", count=at_least("count", count, -1))

    def shard(self, num_shards: int, index: int) -> Dataset[T]:
        """Keep every ``num_shards``-th element, starting with element ``index`` (tf.data ``shard``).

        Call ``shard`` before ``map`` and ``shuffle``. If possible, call ``shard`` on a dataset of file names.

        Raises:
            PlanError: ``index`` is not below ``num_shards``.
        """
        shards = at_least("num_shards", num_shards, 1)
        if at_least("index", index, 0) >= shards:
            raise PlanError(f"index must be below num_shards ({shards}), got {index}")
        return self._then(op.Shard, "shard", num_shards=shards, index=integer("index", index))

    def assert_cardinality(self, count: int) -> Dataset[T]:
        """Check that the dataset has ``count`` elements (tf.data ``assert_cardinality``).

        The returned dataset has this number as its :meth:`cardinality`, so ``len()`` works after :meth:`filter` and
        with files. The check is made when a loader reads the last element.

        Args:
            count: Number of elements, or :data:`INFINITE`.

        Raises:
            PlanError: ``count`` is invalid, or differs from a cardinality that is known without reading.

        Raises (when iterated):
            CardinalityError: The dataset has fewer or more elements. All elements before the error are delivered.
        """
        return self._then(AssertCardinality, "assert_cardinality", count=asserted_count(count, cardinality(self.plan)))

    @overload
    def pad_to_cardinality(self: Dataset[Never], count: int) -> Dataset[Any]: ...
    @overload
    def pad_to_cardinality(self: Dataset[dict[A, E]], count: int) -> Dataset[dict[A, Any]]: ...  # type: ignore[overload-overlap]
    @overload
    def pad_to_cardinality(self, count: int) -> Dataset[tuple[T, bool]]: ...
    def pad_to_cardinality(self, count: int) -> Dataset[Any]:
        """Extend the dataset to ``count`` elements, and mark the added elements (tf.data ``pad_to_cardinality``).

        Elements that are dicts get the key ``"valid"``: True for data and False for padding. Any other element becomes
        a pair (element, valid). Padding elements repeat the last element; in tf.data, they are zero::

            padded = Dataset.from_list([{"x": 1}, {"x": 2}]).pad_to_cardinality(3)
            print([(row["x"], row["valid"]) for row in padded])  # [(1, True), (2, True), (2, False)]

        Args:
            count: Number of elements, at least the number of elements of the dataset.

        Raises:
            PlanError: The dataset is empty or larger than ``count``, or its cardinality is unknown or infinite. Use
                :meth:`assert_cardinality` for a dataset whose number of elements you know.

        Raises (when iterated):
            CardinalityError: The dataset has fewer elements than its cardinality.
            RankError: An element is a dict that already has the key ``"valid"``.
        """
        rows = cardinality(self.plan)
        return self._then(PadToCardinality, "pad_to_cardinality", rows=padded_count(count, rows), own=rows)

    def ignore_errors(self, *, log: str | os.PathLike[str] | None = None) -> Dataset[T]:
        """Skip the elements for which an operator before this call fails (tf.data ``ignore_errors``).

        The call sets ``on_error="skip"`` in all functions, parsers and file sources before it that have no ``on_error``
        of their own. Other operators still raise their errors. :meth:`Loader.stats` counts the skipped elements. To
        limit their number, pass ``on_error=Skip(max_count=...)`` to the operators. See docs/bad_data.md.

        Args:
            log: Path of a JSON-lines file for the skipped elements, as with :class:`Quarantine`. :meth:`replay`
                processes them again.
        """
        from aiostream_data.plan.rewrite import with_policy_so_far

        policy = Skip() if log is None else Quarantine(log)
        check_extends(self.plan, "ignore_errors")
        return Dataset(with_policy_so_far(self.plan, policy), self.carried_options)

    # -- several datasets

    @overload
    def zip(self: Dataset[A], dataset: Dataset[E], /) -> Dataset[tuple[A, E]]: ...
    @overload
    def zip(self: Dataset[A], second: Dataset[E], third: Dataset[F], /) -> Dataset[tuple[A, E, F]]: ...
    @overload
    def zip(self: dict[A, Dataset[E]], /) -> Dataset[dict[A, E]]: ...  # type: ignore[misc]
    @overload
    def zip(*datasets: Any) -> Dataset[Any]: ...
    def zip(*datasets: Any) -> Dataset[Any]:
        """Combine one element of each dataset into one output element (tf.data ``zip``).

        The output ends when the shortest dataset ends.

        ``Dataset.zip(a, b)`` and ``a.zip(b)`` emit tuples. ``Dataset.zip({"x": a, "y": b})`` emits dicts. Datasets in
        any nested structure are accepted.

        Raises:
            PlanError: An argument is a list or not a dataset.
        """
        whole: Any = datasets[0] if len(datasets) == 1 else tuple(datasets)
        structure, leaves = flatten(whole)
        if not leaves:
            raise PlanError("zip() needs at least one dataset")
        nodes = tuple(_plan_in("zip", leaf) for leaf in leaves)
        return Dataset(op.Zip(structure=structure, nodes=nodes), merged_options(leaves))

    @overload
    def concatenate(self: Dataset[E], /, *datasets: Dataset[E]) -> Dataset[E]: ...
    @overload
    def concatenate(*datasets: Dataset[Any]) -> Dataset[Any]: ...
    def concatenate(*datasets: Any) -> Dataset[Any]:
        """Emit all elements of the first dataset, then all elements of the next datasets (tf.data ``concatenate``).

        The datasets must have elements of one structure, with the same dtypes. Shapes may differ. Parts of
        :attr:`element_spec` that are unknown, or known from annotations only, are not checked. To check the results of
        functions, declare them: ``map(function, spec=...)``.

        Raises:
            ArgumentTypeError: Elements of two datasets differ in structure or dtype (a ``TypeError``, as in tf.data).
            PlanError: An argument is not a dataset.
        """
        plans = [_plan_in("concatenate", dataset) for dataset in datasets]
        nodes = tuple(node for plan in plans for node in (plan.nodes if type(plan) is op.Concatenate else (plan,)))
        check_concatenated(nodes)
        return Dataset(op.Concatenate(nodes=nodes), merged_options(datasets))

    def enumerate(self, start: int = 0) -> Dataset[tuple[int, T]]:
        """Emit (number, element) pairs; the numbers start at ``start`` (tf.data ``enumerate``)."""
        return self._then(op.Enumerate, "enumerate", start=integer("start", start, -MOST - 1))

    # -- memory and devices

    def cache(self) -> Dataset[T]:
        """Keep the elements of the first complete pass in memory (tf.data ``cache``).

        All iterators of this process share the cache. The cache discards the elements of an incomplete pass. The cached
        elements count against the memory limit of the loader that read these elements.
        """
        return self._then(op.Cache, "cache")

    def prefetch(self, buffer_size: Concurrency = AUTO) -> Dataset[T]:
        """Prepare up to ``buffer_size`` elements ahead of the consumer (tf.data ``prefetch``)."""
        size = auto_or_at_least_one("buffer_size", buffer_size)
        return self._then(op.Prefetch, "prefetch", buffer_size=size)

    def in_subprocess(self, workers: int = 1) -> Dataset[T]:
        """Run all operators before this call in a separate process, without using CPU time of the training process.

        Elements arrive through shared memory as NumPy arrays that the consumer owns. ``in_subprocess`` does not change
        the order of elements, saved states, the stream hash or row origins. With several workers, each worker emits
        every ``workers``-th element. :meth:`explain` reports the operators that every worker runs on all elements.

        Raises:
            StageBuildError: A function or source cannot be pickled for another process.
            PlanError: ``workers`` exceeds 1, and an operator before this call has ``ordered=False``.
        """
        return self._then(in_subprocess, "in_subprocess", workers=workers)

    def to_device(
        self,
        device: str = "auto",
        *,
        depth: int = 3,
        handoff: HandOff = "copy",
        framework: FrameworkName | None = None,
        transform: ImageCast | None = None,
        allow_pageable: bool = False,
    ) -> Dataset[Any]:
        """Copy batches to the memory of a device. This operator must be the last one of the dataset.

        Batches are written into ``depth`` reusable slots and copied ahead of the consumer::

            for batch in dataset.batch(256).to_device(framework="torch"):
                loss = step(batch["image"], batch["label"])  # tensors of your own, on your current stream

        Args:
            device: "cpu", "cuda", "cuda:N", or "auto" (a GPU if the machine has one). "cuda" means the GPU with the
                number in the environment variable LOCAL_RANK. Without LOCAL_RANK, "cuda" means CUDA's current device.
            depth: Maximum number of batches on the device, including copies in progress.
            handoff: Method by which the consumer receives a batch. "copy" returns new arrays. "lease" returns a
                :class:`DeviceBatch` without copying: its arrays stay in the slot until you release the batch. "into"
                returns a :class:`DeviceBatch` whose method :meth:`DeviceBatch.into` copies the batch into your own
                arrays. CUDA graphs need arrays at fixed addresses.
            framework: Type of the returned arrays: "cupy", "torch" or "jax". None means NumPy on "cpu" and CuPy on a
                GPU.
            transform: Conversion of uint8 images on the device, before the consumer receives the batch. Invalid with
                handoff="lease".
            allow_pageable: If True and host memory cannot be page-locked, emit a warning and use pageable memory.

        Raises:
            PlanError: An argument is invalid, or two arguments contradict each other.

        Raises (when opened):
            MissingExtraError, DeviceUnavailableError: The device or the framework is not available.
        """
        from aiostream_data.device.handover import HandOver
        from aiostream_data.device.image_cast import ImageCast
        from aiostream_data.device.select import check_device

        terms = HandOver(handoff=handoff, framework=framework)
        if isinstance(device, str) and device == "cpu" and framework == "cupy":
            raise PlanError(
                "to_device(): framework='cupy' needs a GPU, got device 'cpu'. Remove framework=, or pass 'cuda:0'."
            )
        if transform is not None and handoff == "lease":
            raise PlanError(
                "to_device(): transform= cannot be combined with handoff='lease', because a lease exposes the slot "
                "itself. Use handoff='copy' or 'into'."
            )
        if not isinstance(transform, (ImageCast, NoneType)):
            raise PlanError(f"transform must be an ImageCast or None, got {transform!r}")
        placed = self._then(
            op.ToDevice,
            "to_device",
            device=check_device(device),
            depth=at_least("depth", depth, 1),
            handoff=terms.handoff,
            framework=terms.framework,
            transform=transform,
            allow_pageable=flag("allow_pageable", allow_pageable),
        )
        check_transform(placed.plan)
        return placed

    def apply(self, transformation: Callable[[Dataset[T]], Dataset[U]]) -> Dataset[U]:
        """Return ``transformation(self)`` (tf.data ``apply``)."""
        if not callable(transformation):
            raise PlanError(f"apply() needs a function, got {type(transformation).__name__}")
        return transformation(self)

    # -- facts known before reading

    @property
    def element_spec(self) -> Any:
        """Structure of an element, with one :class:`ArraySpec` per leaf (array). Unknown parts are left unspecified.

        The results of a function are known from the argument ``spec=`` of its operator, or from the annotation of the
        function's result. Annotations are not checked, so checks of later operators and memory bounds do not use them.
        To read the first element instead, call :meth:`infer_spec`.

        Raises:
            PlanError: An annotation contradicts a later operator, such as :meth:`select` of a missing column.
        """
        from aiostream_data.plan.annotations import element_spec

        return element_spec(self.plan)

    def infer_spec(self, **open_options: Any) -> Any:
        """Read the first element, and return its spec. tf.data needs no such method. Blocks until the element is read.

        The result has the form of :attr:`element_spec`, and can be declared as ``spec=``. Set axes of varying length to
        None first, because one element does not show them. Axes and dtypes that the plan knows are taken from it::

            numbers = Dataset.range(5).map(lambda number: {"x": [number, number]})
            print(numbers.infer_spec())  # {'x': ArraySpec(shape=(2,), dtype=dtype('int64'), ragged=False)}

        Every call reads the beginning of epoch 0 of all ranks, and does not count as an iteration. Inside an event
        loop, :meth:`ainfer_spec` does the same without blocking.

        Args:
            open_options: Arguments of :meth:`open`, such as ``seed``.

        Raises:
            CardinalityError: The dataset is empty.
            StageBuildError: The source of the dataset can be read only once.
            PlanError: The dataset ends in :meth:`to_device`.
        """
        from aiostream_data.loading.first_element import first_element

        return inferred_spec(self.plan, first_element(self._open_first("infer_spec", open_options)))

    async def ainfer_spec(self, **open_options: Any) -> Any:
        """Do the same as :meth:`infer_spec`, without blocking the event loop."""
        from aiostream_data.loading.first_element import first_element_async

        return inferred_spec(self.plan, await first_element_async(self._open_first("ainfer_spec", open_options)))

    def cardinality(self) -> int:
        """Return the number of elements, :data:`INFINITE` (-1) or :data:`UNKNOWN` (-2)."""
        return cardinality(self.plan)

    def __len__(self) -> int:
        count = cardinality(self.plan)
        if count < 0:
            read = "it has an unknown length until it is read, e.g. with sum(1 for _ in dataset)"
            found = "it is infinite" if count == INFINITE else read
            raise UnknownLengthError(
                f"cannot compute len() of the dataset: {found}. Use cardinality(), which does not raise. For a "
                "DataLoader of PyTorch, wrap the dataset in an IterableDataset: see docs/pytorch.md."
            )
        return count

    def __bool__(self) -> bool:
        return True

    def explain(
        self,
        *,
        memory_limit: int | str | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
    ) -> str:
        """Describe the optimized plan, the files that it reads, and its worst-case memory use. Does no I/O.

        Args:
            memory_limit, shard_cache: The same as for :meth:`open`.
        """
        from aiostream_data.plan.explain import explain

        limit = self._limit(memory_limit)
        return explain(self.plan, limit, str(self.memory_bound(memory_limit=limit, shard_cache=shard_cache)))

    def memory_bound(
        self,
        *,
        memory_limit: int | str | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
    ) -> MemoryBound:
        """Return the maximum memory use of a loader of this dataset, on the host and on the device. Does no I/O.

        ``print(dataset.memory_bound())`` lists the components of the bound. :meth:`open` logs the bound (logger
        "aiostream_data", level INFO). The bound does not include memory that user functions allocate.

        Args:
            memory_limit, shard_cache: The same as for :meth:`open`. A shard cache in memory has its own memory limit.
        """
        from aiostream_data.loading.memory_bound import memory_bound
        from aiostream_data.storage.cache.options import ShardCache

        limit = self._limit(memory_limit)
        cache = self.carried_options.get("shard_cache") if shard_cache is None else shard_cache
        return memory_bound(self.plan, limit, ShardCache.of(cache))

    def shuffle_quality(self, *, max_rows: int | None = 100_000, **open_options: Any) -> ShuffleQuality:
        """Read the dataset and measure how well its rows are shuffled. ``str`` of the result is a readable report.

        Args:
            max_rows: Maximum number of rows to read from the beginning; None reads a complete epoch. Only a complete
                epoch shows how well the last rows are shuffled.
            open_options: Arguments of :meth:`open`, such as ``seed``.
        """
        from aiostream_data.transforms.shuffle_quality import quality_of_elements

        with self.open(**open_options) as loader:
            return quality_of_elements((loader.last_ids for _ in loader), max_rows)

    def fingerprint(self) -> str:
        """Return a hash of the operators and their arguments, as 16 hex digits (tf.data ``fingerprint``). Does no I/O.

        Two datasets with the same fingerprint emit the same rows in the same order, if their seeds and files are the
        same. The hash includes data in memory and the source code of functions. It ignores the contents of files, the
        options of :meth:`with_options`, and settings that only affect speed, such as :meth:`prefetch`. The fingerprint
        is the same in every process, and can differ between versions of this package.
        """
        from aiostream_data.plan.fingerprint import describe_plan, digest

        return digest(describe_plan(self.plan))

    # -- options

    def with_options(self, **options: Any) -> Dataset[T]:
        """Return the same dataset with arguments for :meth:`open` (tf.data ``with_options``).

        Operators pass the options on. A later call of ``with_options`` overrides single options of an earlier call, and
        arguments of :meth:`open` override options. If an operator combines several datasets, options of later datasets
        take precedence::

            dataset = Dataset.range(9).with_options(memory_limit="1GB", deterministic=False).batch(3)
            print(dataset.options())  # {'memory_limit': '1GB', 'deterministic': False}

        Options of datasets that a function of :meth:`flat_map` or :meth:`interleave` returns have no effect.

        Args:
            options: ``deterministic``, ``memory_limit``, ``seed``, ``on_error``, ``dead_letters``, ``shard_cache``,
                ``prices``, ``debug``, ``stall_after``, ``stage_timeout``, ``full_tracebacks``, ``profile`` or
                ``native_threads``, as for :meth:`open`.

        Raises:
            PlanError: An option is unknown or invalid.
        """
        return Dataset(self.plan, {**self.carried_options, **checked_options(options, self._limit)})

    def options(self) -> dict[str, Any]:
        """Return the options that :meth:`with_options` set (tf.data ``options``)."""
        return dict(self.carried_options)

    # -- running

    @completed_by_options
    def open(
        self,
        state: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        memory_limit: int | str | None = None,
        epoch: int = 0,
        seed: int | None = None,
        deterministic: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        worker: tuple[int, int] | None = None,
        replicate: int = 1,
        policy: Policy = "row",
        tail: Tail | None = None,
        counts: Sequence[int] | None = None,
        consensus: Callable[[bool], bool] | None = None,
        broadcast: Callable[[bytes | None], bytes] | None = None,
        skip: Iterable[tuple[int, int]] = (),
        block: Iterable[Any] = (),
        on_error: OnError = None,
        dead_letters: str | os.PathLike[str] | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
        prices: Mapping[str, Any] | None = None,
        force: bool = False,
        allow: Collection[str] = (),
        debug: bool = False,
        stall_after: float | None = 120.0,
        stage_timeout: float | None = None,
        full_tracebacks: bool = False,
        profile: bool = False,
        hidden_state: Literal["warn", "raise"] = "warn",
        native_threads: int | None = None,
    ) -> Loader[T]:
        """Start reading the dataset and return the running :class:`Loader`.

        Outside an event loop, ``open`` blocks until the files are found. A wrong file name therefore raises an error in
        ``open``. Inside an event loop, ``async with`` waits until the files are found.

        Args:
            state: Result of :meth:`Loader.state_dict`. The loader emits exactly the elements that remained when the
                state was saved, in the same order. If you pass a list with the states of all ranks, the loader also
                restores the ranks' combined stream hash.
            memory_limit: Maximum memory of the loader in bytes, or a string such as "256MB". The default is a quarter
                of the memory of the cgroup or machine.
            epoch: Number of this pass over the data. Shuffles and ``rng`` use new random numbers in each epoch.
            seed: Seed of all operators without their own seed. The default is the seed in ``state``. Without a state,
                the default is a random seed.
            deterministic: If False, every operator emits its results in the order of completion. The elements are the
                same, but their order can differ (tf.data ``options().deterministic``).
            rank, world_size: Number of this process, and number of processes. Each process receives different rows. If
                both arguments are None, the loader detects the values (torch.distributed, JAX, Ray Train, launcher
                variables), unless the dataset uses ``shard()``. With ``rank=0, world_size=1``, the process reads all
                rows.
            worker: Number of this worker process and number of workers that share the elements of this rank. If None,
                the loader detects the workers of a PyTorch DataLoader over an IterableDataset. Each element is then
                emitted by exactly one worker. With ``(0, 1)``, this process receives all elements of the rank.
            replicate: Number of consecutive ranks that receive the same rows.
            policy, tail, counts, consensus: Options that control how ranks share the rows, and how all ranks get equal
                numbers of batches; see :class:`aiostream_data.ranks.Sharing`.
            broadcast: Function that lets rank 0 list the files for all ranks. Every rank calls this function one time
                during opening, on a thread of the loader. Rank 0 passes a message; other ranks pass None. On every
                rank, the function must return the message of rank 0.
            skip: Ranges (first, stop) of elements to read and discard. Elements are counted from the start of the
                stream.
            block: Rows to exclude. Each entry is a row origin, a pair (URL, record index), or the URL of an object to
                exclude completely.
            on_error: Error policy of all operators without their own ``on_error``: "raise", "skip" or a policy object;
                see :meth:`map`. The policy also applies to damaged and missing files. With Replace, such files raise an
                error.
            dead_letters: Path of a JSON-lines file. The loader appends every skipped or replaced record to this file
                one time. :meth:`replay` processes these records again.
            shard_cache: A :class:`ShardCache`, or the path of a cache folder. The cache keeps data of remote shards for
                later passes, other loaders and other processes.
            prices: Store prices for ``stats().cost``: per 1,000 requests ("GET", "HEAD", "LIST") and per 10**9 bytes
                ("egress"). Pass one price table for all stores, or one price table per URL scheme ("s3").
            force: If True, accept a state whose plan, seed or shard list differs from the current one.
            allow: Accepted differences between the saved state and this dataset, such as "shards" or
                "shuffle.buffer_size".
            debug: If True, compute one element at a time, on the consumer's thread; see :meth:`debug`.
            stall_after: Seconds of waiting for one element before the logger "aiostream_data" emits one warning. The
                warning names the stuck stage and includes the output of :meth:`Loader.dump`. None disables the warning.
            stage_timeout: Seconds of waiting for one element before the loader fails with a
                :class:`~aiostream_data.errors.StageTimeoutError` that names the stuck stage. None waits without limit.
                To limit the duration of single function calls, use ``map(timeout=)``.
            full_tracebacks: If True, keep the stack frames of this package and of asyncio in tracebacks of errors in
                your functions.
            profile: If True, measure the duration of every copy to the device, for ``stats().devices``. Profiling slows
                the loader slightly.
            hidden_state: Action for functions with state that a resumed run cannot restore, such as a random generator
                in a closure. Operators issue a :class:`HiddenStateWarning` for such functions. "raise" also raises an
                error here. See docs/functions.md.
            native_threads: Maximum number of threads of each BLAS or OpenMP library in user functions. None does not
                limit them. Needs the extra ``threads``. BLAS libraries have one setting per process, so the limit also
                applies to the training loop until the loader is closed. Debug mode ignores it. See docs/executors.md.

        Raises:
            NoMatchError, StorageError, DeviceUnavailableError, MissingExtraError, ShardCacheError: The loader cannot
                start.
            StateMismatchError: The plan, seed or shard list differs from the saved state. The error lists the
                differences.
            RankError: The rows of this dataset cannot be shared among this number of ranks.
            StageBuildError: A function has hidden state, and ``hidden_state`` is "raise".
        """
        # Imported lazily: these modules account for most of the package's import time.
        from aiostream_data._engine.run_options import Diagnosing, Failing, Resuming, RunOptions
        from aiostream_data.loading.exclusions import Exclusions
        from aiostream_data.loading.loader import Loader
        from aiostream_data.loading.memory_bound import log_memory_bound
        from aiostream_data.loading.opening import Opening, ranks_of, workers_of
        from aiostream_data.loading.state_format import Saved
        from aiostream_data.metrics.request_prices import Prices
        from aiostream_data.plan.difference import checked_allow
        from aiostream_data.plan.snapshots import pinned
        from aiostream_data.ranks import Sharing
        from aiostream_data.storage.cache.options import ShardCache

        warn_without_native_core()
        if word("hidden_state", hidden_state, ("warn", "raise")) == "raise":
            refuse_hidden_state(self.plan)
        saved = Saved.of(state)
        plan = completed(self.plan if saved is None else pinned(self.plan, saved.pipeline.get("plan")))
        steering = Exclusions.of(skip, block)
        log = None if dead_letters is None else os.path.abspath(log_path("dead_letters", dead_letters))
        run = RunOptions(
            memory_limit=default_limit() if memory_limit is None else parse_nbytes(memory_limit),
            debug=flag("debug", debug),
            shard_cache=ShardCache.of(shard_cache),
            native_threads=native_threads_of(native_threads),
            resuming=Resuming(
                force=flag("force", force),
                allow=checked_allow(several("allow", allow, "names of differences"), plan),
            ),
            failing=Failing(dead_letters=log, full_tracebacks=flag("full_tracebacks", full_tracebacks)),
            diagnosing=Diagnosing(
                stall_after_s=seconds_or_none("stall_after", stall_after),
                stage_timeout_s=seconds_or_none("stage_timeout", stage_timeout),
                profile=flag("profile", profile),
            ),
        )
        opening = Opening(
            plan=plan,
            run=run,
            epoch=at_least("epoch", epoch, 0),
            seed=seed_of(seed),
            deterministic=flag("deterministic", deterministic),
            ranks=ranks_of(plan, rank, world_size, replicate),
            workers=workers_of(plan, worker, rank, world_size),
            sharing=Sharing(policy=policy, tail=tail, counts=counts, consensus=consensus),
            broadcast=function_or_none("broadcast", broadcast),
            on_error=None if policy_of(on_error) == Raise() else on_error,
            prices=Prices.of(prices),
            saved=saved,
            steering=steering if saved is None else Exclusions.from_dict(saved.steering) | steering,
        )
        log_memory_bound(opening.plan, opening.run.memory_limit, opening.run.shard_cache)
        loader: Loader[T] = Loader(opening)
        if not _in_running_loop():
            loader.wait_ready()
        return loader

    def reduce(
        self, function: Callable[[U, T], U] | Callable[[U, T], Awaitable[U]], initial: U, **open_options: Any
    ) -> U:
        """Read all elements and combine them into one value (tf.data ``reduce``). Blocks until the end of the dataset.

        The method calls ``function(state, element)`` for each element in order, on the caller's thread. The function
        returns the next state, and the result is the last state. A tuple element is one argument::

            total = Dataset.range(5).reduce(lambda total, number: total + number, 0)
            print(total)  # 10

        As with each iteration over a dataset, every call reads a new epoch. With several ranks, each rank combines its
        own elements. A coroutine function runs in an event loop of its own. Inside a running event loop, use
        :meth:`areduce`, which does not block the loop.

        Args:
            initial: State before the first element, and result for an empty dataset. The method uses a copy of it.
            open_options: Arguments of :meth:`open`, such as ``seed``.

        Raises:
            PlanError: ``function`` is not callable, the dataset is infinite, or ``initial`` cannot be copied. Or
                ``function`` is a coroutine function, and the caller runs in an event loop.
            StageBuildError: ``function`` is a generator function, or cannot be called with two arguments.
        """
        from aiostream_data.loading.reducing import reduced

        functions.check_reduction("reduce", function, cardinality(self.plan))
        if not functions.is_coroutine_function(function):
            state = functions.copied_state("reduce", initial)
            return cast(U, reduced(function, self._open_next(open_options), state))
        if _in_running_loop():
            raise PlanError(
                "reduce() cannot await a coroutine function inside a running event loop, because it would block the "
                "loop. Use await dataset.areduce()."
            )
        import asyncio

        return asyncio.run(self.areduce(function, initial, **open_options))

    async def areduce(
        self, function: Callable[[U, T], U] | Callable[[U, T], Awaitable[U]], initial: U, **open_options: Any
    ) -> U:
        """Do the same as :meth:`reduce`, without blocking the event loop.

        The caller's event loop calls ``function``, and awaits the result of a coroutine function. A cancelled call
        closes the loader.

        Args:
            initial, open_options: The same as for :meth:`reduce`.

        Raises:
            PlanError, StageBuildError: The same as for :meth:`reduce`.
        """
        from aiostream_data.loading.reducing import reduced_async

        functions.check_reduction("areduce", function, cardinality(self.plan))
        state = functions.copied_state("areduce", initial)
        return cast(U, await reduced_async(function, self._open_next(open_options), state))

    def get_single_element(self, **open_options: Any) -> T:
        """Return the only element of the dataset (tf.data ``get_single_element``). Blocks until it is read.

        Inside an event loop, :meth:`aget_single_element` does the same without blocking.

        Args:
            open_options: Arguments of :meth:`open`, such as ``seed``.

        Raises:
            CardinalityError: The dataset has no element, or more than one.
        """
        from aiostream_data.loading.single_element import check_single, single_element

        check_single(cardinality(self.plan))
        return cast(T, single_element(self._open_next(open_options)))

    async def aget_single_element(self, **open_options: Any) -> T:
        """Do the same as :meth:`get_single_element`, without blocking the event loop."""
        from aiostream_data.loading.single_element import check_single, single_element_async

        check_single(cardinality(self.plan))
        return cast(T, await single_element_async(self._open_next(open_options)))

    def debug(self, state: Any = None, **open_options: Any) -> Loader[T]:
        """Open the dataset in debug mode: compute one element at a time, on the consumer's thread.

        User functions run inside ``next()``, so ``breakpoint()``, ``print`` and profilers work in user functions. To
        debug at the position of a running loader, call :meth:`Loader.debug`.

        Args:
            state, open_options: The same as for :meth:`open`.
        """
        return self.open(state, debug=True, **open_options)

    def fetch(self, origin: Origin | Mapping[str, Any], *, memory_limit: int | str | None = None) -> Any:
        """Recompute one row from its origin. Return the row as the loader delivered it.

        The method reads the row from its source and applies the operators again, with the same random augmentation. If
        the dataset uses ``batch``, the result is the row before batching. Operators after ``batch`` do not apply.

        Args:
            origin: An entry of :meth:`Loader.origins`, or the result of the entry's ``as_dict()``.
            memory_limit: As for :meth:`open`.

        Raises:
            StateMismatchError: This dataset does not contain a row with this origin.
        """
        from aiostream_data.loading.fetching import fetch_row
        from aiostream_data.rows.provenance import Origin

        limit = self._limit(memory_limit)
        return fetch_row(completed(self.plan), Origin.of(origin), limit)

    def replay(self, log: str | os.PathLike[str]) -> Dataset[T]:
        """Return a dataset that reprocesses the records in a dead-letter log, starting at the operator that failed.

        The returned dataset reads each logged record again from its source. ``repeat``, ``take``, ``skip`` and
        ``shard`` do not apply to the replayed records. Without a seed, the replay uses the seed stored in the log. To
        log new failures, open the returned dataset with an error policy and another log file. The replay skips, with a
        warning, records that a source could not read. Repair the files of such records and read the files again.

        Args:
            log: File written by ``open(dead_letters=...)`` or :class:`Quarantine` for this dataset or a similar one.

        Raises:
            DeadLetterError: The log is unreadable or empty, or does not match the plan of this dataset.
        """
        from aiostream_data.failing.dead_letter_log import read_entries
        from aiostream_data.plan.replaying import replayed

        return Dataset(replayed(self.plan, read_entries(log)), self.carried_options)

    def __iter__(self) -> Iterator[T]:
        """Open a loader, yield its elements and close the loader.

        Each iteration over this dataset is a new epoch, as in tf.data.
        """
        from aiostream_data.loading.iterations import Iteration

        return Iteration.over(self._open_next)

    def __aiter__(self) -> AsyncIterator[T]:
        """Open a loader and return an async iterator over its elements. Deleting the iterator closes the loader."""
        from aiostream_data.loading.iterations import AsyncIteration

        return AsyncIteration(self._open_next())

    def _open_next(self, open_options: Mapping[str, Any] = NO_OPTIONS) -> Loader[T]:
        """Open a loader of the next epoch. ``open_options`` override the epoch and the seed of iterations."""
        if open_options.get("state") is not None:  # the state contains both
            return self.open(**open_options)
        chosen: dict[str, Any] = {"epoch": self._next_epoch()}
        if self.carried_options.get("seed") is None:
            chosen["seed"] = self._seed_of_iterations()
        return self.open(**{**chosen, **open_options})

    def _open_first(self, name: str, open_options: Mapping[str, Any]) -> Loader[Any]:
        """Open a loader of the first element of all ranks."""
        check_rereadable(self.plan, f"{name}()")
        first = self._then(op.Take, name, count=1)
        return first.open(**{"rank": 0, "world_size": 1, "worker": (0, 1), **open_options})

    def _limit(self, memory_limit: int | str | None) -> int:
        """Return a memory limit in bytes. None selects the option of the dataset, or the default."""
        chosen = self.carried_options.get("memory_limit") if memory_limit is None else memory_limit
        return default_limit() if chosen is None else parse_nbytes(chosen)

    def _seed_of_iterations(self) -> int | None:
        """Return the seed for all iterations over this dataset, or None if other processes must use the same seed."""
        from aiostream_data.loading.opening import is_shared
        from aiostream_data.plan.replaying import replayed_seed

        logged = replayed_seed(self.plan)
        if logged is not None:
            return logged
        if is_shared(self.plan):
            return None
        if self._iterated_in != os.getpid():  # a fork must draw another seed than its parent and siblings
            self._iterated_in, self._iteration_seed = os.getpid(), secrets.randbits(62)
        return self._iteration_seed

    def _next_epoch(self) -> int:
        iterations: Iterator[int] = self.__dict__.setdefault("_iterations", itertools.count())
        epoch = next(iterations)
        if epoch:
            check_rereadable(self.plan, "iterating again")
        return epoch

    def __repr__(self) -> str:
        from aiostream_data.plan.shown import elements_of, on_one_line, shortened

        return f"<Dataset {on_one_line(self.plan)}, each element: {shortened(elements_of(self.plan))}>"

    def _repr_html_(self) -> str:
        """Return the plan as an HTML table for notebooks."""
        from aiostream_data.plan.shown import as_html

        return as_html(self.plan)


def _values(datasets: Any) -> list[Any]:
    return list(datasets.values() if isinstance(datasets, Mapping) else datasets)


def _plan_in(operation: str, dataset: Any) -> Node:
    if isinstance(dataset, list):
        cure = "Pass the datasets as separate arguments, or convert the list with from_tensor_slices()."
        raise PlanError(f"{operation}() needs datasets, got a list. {cure}")
    return plan_of(dataset, operation)


def _in_running_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:  # an event loop cannot run before asyncio is imported
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
