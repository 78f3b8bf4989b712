"""Folders of images: check the arguments of ``from_image_folder()``, and find the classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from aiostream_data.arguments import several, shown
from aiostream_data.dataset.file_sources import Reading, Url
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import ArgumentTypeError, NoMatchError, PlanError
from aiostream_data.formats.image_folder import ImageFolderFormat, ImageLabels, path_below
from aiostream_data.plan.base import Node
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.patterns import escaped
from aiostream_data.storage.urls import is_http, split_url

if TYPE_CHECKING:
    from aiostream_data.storage.stores import StoreSet


@dataclass(frozen=True)
class Root:
    """Folder that contains the class folders.

    Attributes:
        scheme: URL scheme, with aliases resolved.
        path: Path without ``scheme://``, which ends with ``/``.
    """

    scheme: str
    path: str

    @classmethod
    def of(cls, url: Any) -> Root:
        """Check a ``url`` argument.

        Raises:
            PlanError: The argument is not a URL or path.
        """
        if not isinstance(url, (str, os.PathLike)):
            raise ArgumentTypeError(f"url must be the URL or path of one folder, got {type(url).__name__}")
        if not os.fspath(url):
            raise PlanError("url must be the URL or path of one folder, got an empty string")
        scheme, path = split_url(url)
        return cls(scheme, path.rstrip("/") + "/")

    @property
    def url(self) -> str:
        return self.path if self.scheme == "file" else f"{self.scheme}://{self.path}"

    def patterns(self, classes: Sequence[str] | None) -> tuple[str, ...]:
        """Return the patterns that match all files of the classes, so that the files are listed in the order of URLs.

        HTTP URLs have no wildcards, so an index names the files.
        """
        if is_http(self.scheme):
            return ()
        if classes is None:
            return (escaped(self.url) + "*/**",)
        return tuple(escaped(f"{self.url}{name}/") + "**" for name in sorted(classes, key=lambda name: name + "/"))


def image_folder(url: Any, classes: Any, reading: Reading, storage_options: Any, index: Url | None) -> ReadFiles:
    """Return the plan node of ``from_image_folder``.

    Raises:
        PlanError: An argument is invalid.
    """
    root, names = Root.of(url), _classes(classes)
    if is_http(root.scheme) and index is None:
        raise PlanError(f"HTTP servers cannot list the files of {safe_url(root.url)}. Pass index=, see write_index().")
    node = reading.node(root.url, ImageFolderFormat(classes=names, root=root.path), storage_options, index)
    node = replace(node, patterns=root.patterns(names), decoders=(ImageLabels(root.path, names or ()),))
    return node if names is None else _labelled(node, names)


def image_classes(url: Url, *, index: Url | None = None, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of the class folders in a folder of images, sorted. The place of a name is its label. Blocks.

    :meth:`Dataset.from_image_folder` uses the same names. Folders whose names begin with a dot are no classes.

    Args:
        url: URL or path of the folder that contains the class folders.
        index: Index file with the URLs of the images, as for :meth:`Dataset.list_files`; required for HTTP.

    Raises:
        NoMatchError: The folder contains no folder.
        StorageError: The store did not answer.
    """
    reading = Reading("", 1, 1, False, None, True, 1, None)
    return _found(image_folder(url, None, reading, storage_options, index))


def with_classes(plan: Node) -> Node:
    """Return the plan with the classes of each ``from_image_folder()`` that has no ``classes=``. Blocks.

    All ranks list the same folders, so they find the same labels. A saved state refuses other classes.

    Raises:
        NoMatchError: A folder contains no folder.
        StorageError: The store did not answer.
    """

    def labelled(node: Node) -> Node | None:
        return _labelled(cast(ReadFiles, node), _found(cast(ReadFiles, node))) if _is_open(node) else None

    return replaced(plan, labelled)


class ImageDecoder:
    """Function that decodes the image of a row. Picklable if ``decode`` is.

    Args:
        decode: Function from the bytes of an image to its pixels.
    """

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self.decode = decode

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "image": self.decode(row["image"])}


def image_decoder(decode: Any) -> ImageDecoder | None:
    """Return the function for a ``decode`` argument: True, False, None, or a function of the bytes of an image.

    Raises:
        PlanError: The argument is invalid.
    """
    from aiostream_data.codecs.images import decode_image

    if decode is None or decode is False:
        return None
    if decode is not True and not callable(decode):
        raise ArgumentTypeError(f"decode must be True, None or a function, got {type(decode).__name__}")
    return ImageDecoder(decode_image if decode is True else decode)


def _classes(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = several("classes", given, "a list of names of folders")
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise PlanError(f"classes must be different names of folders, got {shown(list(names))}")
    wrong = [name for name in names if not name or "/" in name or name in (".", "..")]
    if wrong:
        raise PlanError(f"classes must be names of folders directly in the folder of images, got {shown(wrong[0])}")
    return names


def _is_open(node: Node) -> bool:
    format = getattr(node, "format", None)
    return isinstance(format, ImageFolderFormat) and format.classes is None


def _labelled(node: ReadFiles, classes: Sequence[str]) -> ReadFiles:
    """Return the node with known classes."""
    format, names = cast(ImageFolderFormat, node.format), tuple(classes)
    patterns = node.patterns
    if patterns and split_url(patterns[0]).scheme == "file":  # a pattern per folder follows links to folders
        patterns = Root("file", format.root).patterns(names)
    labels = ImageLabels(format.root, names)
    return replace(node, format=replace(format, classes=names), patterns=patterns, decoders=(labels,))


def _found(node: ReadFiles) -> list[str]:
    names = ask_stores(node.storage_options, partial(_names, node))
    if not names:
        root = cast(ImageFolderFormat, node.format).root
        raise NoMatchError(safe_url(root), "the folder contains no folder with images: each class needs a folder")
    return sorted(names)


async def _names(node: ReadFiles, stores: StoreSet) -> set[str]:
    # needed for indexes only
    from aiostream_data.storage.index_file import choose_shards, parse_index
    from aiostream_data.storage.index_reading import read_index_bytes

    root = cast(ImageFolderFormat, node.format).root
    if node.index_url is None:
        return set(await stores.folders(Root(split_url(node.patterns[0]).scheme, root).url))
    content = await read_index_bytes(stores, node.index_url)
    shards = choose_shards(node.index_url, parse_index(node.index_url, bytes(content)), node.patterns)
    return {path_below(shard.url, len(root)).partition("/")[0] for shard in shards}
