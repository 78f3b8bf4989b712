"""Check the arguments of ``from_tfds()``, and read the descriptions in its folder when a dataset is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Never, cast

import numpy as np

from aiostream_data.arguments import flag, several, shown
from aiostream_data.codecs.images import Mode, decode_image
from aiostream_data.dataset.file_sources import Reading, Url
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import ArgumentTypeError, ObjectNotFoundError, PlanError, TfdsError
from aiostream_data.formats.tfds_examples import TfdsExamples
from aiostream_data.formats.tfds_features import TfdsFeature, parse_features
from aiostream_data.formats.tfds_info import DatasetInfo, Piece, parse_info, parse_split, rows_of
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Concatenate, Map, ParseExample, SkipFirst, Take
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.patterns import escaped
from aiostream_data.storage.urls import is_http, split_url

if TYPE_CHECKING:
    from aiostream_data.storage.stores import StoreSet

_INFO = "dataset_info.json"
_FEATURES = "features.json"


@dataclass(frozen=True, kw_only=True)
class TfdsFormat(TFRecordFormat):
    """Format of the shards of a folder that TensorFlow Datasets prepared.

    Attributes:
        split: The ``split`` argument.
    """

    split: str = "train"

    @property
    def name(self) -> str:
        return "tfds"

    def indexed(self, index_url: str, content: bytes) -> Sequence[ShardRef]:
        """Raise an error, because ``open()`` did not find the shards. See :class:`.ReadsIndex`."""
        raise PlanError(
            "from_tfds() reads its folder only when its dataset is opened by itself, but a function returned this "
            "dataset. Combine datasets with concatenate() or sample_from()."
        )


class TfdsInfo(NamedTuple):
    """Description of a folder that TensorFlow Datasets prepared.

    Attributes:
        splits: Number of rows of each split, by name.
        classes: Names of the classes of each ``ClassLabel`` feature, by the name of the feature, such as
            ``objects/label``. The place of a name is its label.
    """

    splits: dict[str, int]
    classes: dict[str, list[str]]


def tfds_source(folder: Any, split: Any, verify: Any, reading: Reading, storage_options: Any) -> ReadFiles:
    """Return the plan node that reads the shards of ``from_tfds``.

    Raises:
        PlanError: An argument is invalid.
    """
    url = _folder(folder)
    parse_split(split)
    format = TfdsFormat(verify=flag("verify", verify), split=split)
    return replace(reading.node(url, format, storage_options, None), patterns=(), index_url=url + _INFO)


def tfds_examples(features: Any) -> TfdsExamples:
    """Return the decoder of ``from_tfds``, without the features that the folder declares.

    Raises:
        PlanError: The argument is invalid.
    """
    if features is None:
        return TfdsExamples()
    names = several("features", features, "a list of names of features")
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise PlanError(f"features must be different names of features, got {shown(list(names))}")
    return TfdsExamples(None, names)


def tfds_info(folder: Url, *, storage_options: Mapping[str, Any] | None = None) -> TfdsInfo:
    """Return the splits and the names of classes of a folder that TensorFlow Datasets prepared. Blocks.

    Args:
        folder: URL or path of the folder of one version of a dataset, as for :meth:`Dataset.from_tfds`.
        storage_options: Options of the store, as in fsspec.

    Raises:
        TfdsError: A description is invalid.
        StorageError: A description cannot be read.
    """
    url = _folder(folder)

    async def ask(stores: StoreSet) -> TfdsInfo:
        info, features = await _descriptions(stores, url)
        labels = [feature for feature in features if feature.kind == "ClassLabel"]
        return TfdsInfo(rows_of(info.splits), {each.key: await _names(stores, url, each) for each in labels})

    return ask_stores(storage_options, ask)


def with_features(plan: Node) -> Node:
    """Return the plan with the shards and features of each ``from_tfds()``, as its folder declares them. Blocks.

    Raises:
        TfdsError: A description is invalid, or a feature is not supported.
        PlanError: A split or a selected feature does not exist.
        StorageError: A description cannot be read.
    """
    known = replaced(plan, lambda node: _known(cast(ParseExample, node)) if _is_open(node) else None)
    return replaced(known, _with_images)


def _is_open(node: Node) -> bool:
    return isinstance(node, ParseExample) and isinstance(node.decoder, TfdsExamples) and node.decoder.features is None


def _known(node: ParseExample) -> ParseExample:
    source = cast(ReadFiles, node.input)
    folder = cast(str, source.index_url).removesuffix(_INFO)
    info, declared = ask_stores(source.storage_options, lambda stores: _descriptions(stores, folder))
    features = _selected(folder + _FEATURES, declared, cast(TfdsExamples, node.decoder).select)
    return replace(
        node,
        input=_shards(source, folder, info),
        decoder=TfdsExamples(features),
        features=tuple(feature.key for feature in features),
    )


async def _descriptions(stores: StoreSet, folder: str) -> tuple[DatasetInfo, tuple[TfdsFeature, ...]]:
    # needed for folders of TensorFlow Datasets only
    from aiostream_data.storage.index_reading import read_index_bytes

    info = parse_info(folder + _INFO, bytes(await read_index_bytes(stores, folder + _INFO)))
    features = parse_features(folder + _FEATURES, bytes(await read_index_bytes(stores, folder + _FEATURES)))
    return info, features


async def _names(stores: StoreSet, folder: str, label: TfdsFeature) -> list[str]:
    """Return the names of the classes of a label, or their numbers if the folder has no names."""
    from aiostream_data.storage.index_reading import read_index_bytes

    try:
        content = await read_index_bytes(stores, f"{folder}{'-'.join(label.path)}.labels.txt")
    except ObjectNotFoundError:
        return [str(number) for number in range(min(label.num_classes, 1 << 20))]
    return [line.strip() for line in content.decode(errors="replace").split("\n") if line.strip()]


def _selected(url: str, features: Sequence[TfdsFeature], select: Sequence[str] | None) -> tuple[TfdsFeature, ...]:
    found = list(features)
    if select is not None:
        by_name = {name: [each for each in features if f"{each.key}/".startswith(f"{name}/")] for name in select}
        for name, below in by_name.items():
            if not below:
                raise PlanError(f"{safe_url(url)} has no feature {name!r}. Its features are {_named(features)}.")
        wanted = {feature for below in by_name.values() for feature in below}
        found = [feature for feature in features if feature in wanted]
    bad = next((feature for feature in found if feature.problem is not None), None)
    if bad is not None:
        raise TfdsError(url, None, bad.key, f"the feature {bad.problem}. Select other features with features=[...].")
    return tuple(found)


def _named(features: Sequence[TfdsFeature]) -> list[str]:
    return [feature.key for feature in features]


# -- shards


def _folder(folder: Any) -> str:
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise ArgumentTypeError(f"folder must be the URL or path of one folder with {_INFO}, got {shown(folder)}")
    return os.fspath(folder).rstrip("/") + "/"


def _shards(source: ReadFiles, folder: str, info: DatasetInfo) -> Node:
    """Return the node that reads the rows of the split."""
    parts = parse_split(cast(TfdsFormat, source.format).split)
    found = [_piece(source, folder, piece) for piece in info.pieces(parts)]
    return found[0] if len(found) == 1 else Concatenate(nodes=tuple(found))


def _piece(source: ReadFiles, folder: str, piece: Piece) -> Node:
    quoted = folder if is_http(split_url(folder).scheme) else escaped(folder)
    urls = tuple(quoted + name for name in piece.shards)
    node: Node = replace(source, patterns=urls, index_url=None)
    node = SkipFirst(input=node, count=piece.skip) if piece.skip else node
    return node if piece.take is None else Take(input=node, count=piece.take)


# -- images


@dataclass(frozen=True)
class TfdsImages:
    """Function that decodes the images of an element. Picklable.

    Attributes:
        images: The features that are images; None until ``open()`` has read ``features.json``.
    """

    images: tuple[TfdsFeature, ...] | None = None

    def __call__(self, element: dict[str, Any]) -> dict[str, Any]:
        for image in self.images or ():
            element = _changed(element, image.path, partial(_pixels, image))
        return element


def images_decoder(decode: Any) -> TfdsImages | None:
    """Return the function for a ``decode`` argument.

    Raises:
        PlanError: The argument is invalid.
    """
    return TfdsImages() if flag("decode", decode) else None


def _with_images(node: Node) -> Node | None:
    """Return a ``map`` of :class:`TfdsImages` directly behind ``from_tfds()`` with the images of its features.

    Return None for all other nodes. Without images, the map is left out.
    """
    if not isinstance(node, Map) or not isinstance(node.function, TfdsImages) or node.function.images is not None:
        return None
    parsed = cast(ParseExample, node.input)
    features = cast(TfdsExamples, parsed.decoder).features or ()
    images = tuple(feature for feature in features if feature.encoding == "image")
    for image in images:
        if image.image_mode is None:
            _refuse(image)
    return replace(node, function=TfdsImages(images)) if images else parsed


def _refuse(image: TfdsFeature) -> Never:
    dtype = cast("np.dtype[Any]", image.dtype).name
    raise PlanError(
        f"the image {image.key!r} of {dtype} values with shape {image.shape} cannot be decoded. Pass decode=False for "
        "the encoded bytes."
    )


def _changed(element: dict[str, Any], path: Sequence[str], change: Callable[[Any], Any]) -> dict[str, Any]:
    first, *rest = path
    inner = element[first]
    return {**element, first: _changed(inner, rest, change) if rest else change(inner)}


def _pixels(image: TfdsFeature, stored: Any) -> Any:
    """Decode an image, or the images of a sequence."""
    if isinstance(stored, bytes):
        pixels = decode_image(stored, mode=cast(Mode, image.image_mode))
        return pixels.view(image.dtype) if image.dtype == np.float32 else pixels
    decoded = [_pixels(image, each) for each in stored]
    shape = image.shape
    if image.is_nested or None in shape:
        return decoded
    return np.stack(decoded) if decoded else np.empty((0, *cast("tuple[int, ...]", shape)), image.dtype)
