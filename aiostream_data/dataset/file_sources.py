"""Plan nodes of sources that read files from a store, created from validated arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from typing import Any, TypeAlias

from aiostream_data.arguments import flag, shown
from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import OnError, source_policy_of
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import AUTO, Concurrency, Decoder, Node, at_least, auto_or_at_least_one, seed_of
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.braces import patterns_of
from aiostream_data.storage.urls import has_magic, split_url

Url: TypeAlias = "str | os.PathLike[str]"
StorageOptions: TypeAlias = Mapping[str, Any] | None
_SCHEMES = ("s3", "s3a", "gs", "gcs", "http", "https", "file")
_FILES = "files must be URLs, paths or a Dataset of them"
_FILES_CURES: dict[type, str] = {
    bytes: ". Decode the bytes to str, or use from_tensor_slices() for data in memory.",
    dict: ". Pass a list of its values.",
    set: ", which has no order. Pass sorted(files).",
    frozenset: ", which has no order. Pass sorted(files).",
    TextIOWrapper: ". Pass its path.",
    BufferedReader: ". Pass its path.",
}
ASKED_COMPRESSIONS = ("auto", *COMPRESSIONS)


def listed_files(pattern: Any, seed: Any, index: Any, storage_options: Any) -> src.ListFiles:
    """Return the plan node of ``list_files``.

    Raises:
        PlanError: An argument is invalid.
    """
    options, named_in = _options(storage_options), _index(index)
    patterns = _patterns(pattern, named_in)
    return src.ListFiles(patterns=patterns, storage_options=options, seed=seed_of(seed), index_url=named_in)


@dataclass(frozen=True)
class Reading:
    """Arguments shared by all file sources, and the validation of these arguments."""

    compression: str
    cycle_length: int
    block_length: int
    shuffle_shards: bool
    seed: int | None
    ordered: bool
    read_ahead: Concurrency
    on_error: OnError
    checks_first: bool = False
    decoders: tuple[Decoder, ...] = ()

    def node(
        self, files: Any, format: src.FormatLike, storage_options: StorageOptions, index: Url | None
    ) -> src.ReadFiles:
        """Return the plan node of a file source.

        Raises:
            PlanError: An argument is invalid.
        """
        compression = _compression(self.compression)
        plan = getattr(files, "plan", None)
        inner = plan if isinstance(plan, Node) else None
        source_policy_of(self.on_error)
        named_in = _index(index)
        if inner is not None and named_in is not None:
            raise PlanError("index= cannot be combined with a dataset of files. Pass only one of them.")
        return src.ReadFiles(
            patterns=() if inner is not None else _patterns(files, named_in),
            files=inner,
            format=format,
            compression=compression,
            cycle_length=at_least("cycle_length", self.cycle_length, 1),
            block_length=at_least("block_length", self.block_length, 1),
            ordered=flag("ordered", self.ordered),
            shuffle_shards=flag("shuffle_shards", self.shuffle_shards),
            seed=seed_of(self.seed),
            storage_options=_options(storage_options),
            read_ahead=auto_or_at_least_one("read_ahead", self.read_ahead),
            decoders=self.decoders,
            index_url=named_in,
            checks_first=flag("verify", self.checks_first),
            on_error=self.on_error,
        )

    def refuse_streams(self, format: str) -> None:
        """Refuse the arguments that apply only to formats whose files are streams of records.

        Raises:
            PlanError: An argument has another value than its default.
        """
        used = {
            "compression": _compression(self.compression) not in ("auto", ""),
            "verify": flag("verify", self.checks_first),
            "read_ahead": auto_or_at_least_one("read_ahead", self.read_ahead) is not AUTO,
        }
        for name in (name for name, is_used in used.items() if is_used):
            raise PlanError(f"{name} does not apply to the format {format}, which has row groups. Omit this argument.")


def _compression(given: Any) -> str:
    found = "" if given is None else given.lower() if isinstance(given, str) else given
    if not isinstance(found, str) or found not in ASKED_COMPRESSIONS:
        raise PlanError(f"compression must be one of {', '.join(map(repr, ASKED_COMPRESSIONS))}, got {shown(given)}")
    return found


def _index(index: Any) -> str | None:
    if index is None:
        return None
    if not isinstance(index, (str, os.PathLike)) or has_magic(index):
        raise PlanError(f"index must be one URL or path, got {_shown_index(index)}")
    return os.fspath(index)


def _shown_index(index: Any) -> str:
    return repr(safe_url(index)) if isinstance(index, (str, os.PathLike)) else f"a {type(index).__name__}"


def _options(given: StorageOptions) -> dict[str, Any]:
    """Return a copy of ``storage_options``.

    Raises:
        PlanError: ``storage_options`` is not a dict from option names to values.
    """
    if not isinstance(given, Mapping | None):
        raise PlanError(f"storage_options must be a dict of options by name, got {type(given).__name__}")
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise PlanError(f"the keys of storage_options must be str, got {name!r}")
        if name in _SCHEMES and isinstance(value, Mapping):
            raise PlanError(
                f"storage_options[{name!r}] is not a valid key for one store's options. Add '://' to the scheme: "
                f"storage_options={{'{name}://': {{...}}}}"
            )
        if name.endswith("://") and not isinstance(value, Mapping):
            raise PlanError(
                f"storage_options[{name!r}] must be a dict of options for that store, got {type(value).__name__}"
            )
    return dict(given or {})


def _patterns(files: Any, index: str | None) -> tuple[str, ...]:
    if files is None and index is not None:
        return ()
    if files is None:
        raise PlanError("no files are given. Pass files=, or index= to read the files of an index.")
    is_one = isinstance(files, (bytes, Mapping, set, frozenset)) or hasattr(files, "read")
    if is_one or not isinstance(files, (str, os.PathLike, Iterable)):
        raise PlanError(f"{_FILES}, got {type(files).__name__}{_FILES_CURES.get(type(files), '')}")
    listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not listed:
        raise PlanError("files must contain at least one file or pattern, got an empty list")
    for one in listed:
        if not isinstance(one, (str, os.PathLike)):
            raise PlanError(f"{_FILES}, got {type(one).__name__}{_FILES_CURES.get(type(one), '')}")
        if not os.fspath(one):
            raise PlanError(f"{_FILES}, got an empty string")
        split_url(one)  # raises if the text is not a valid URL
    return tuple(name for one in listed for name in patterns_of(os.fspath(one)))
