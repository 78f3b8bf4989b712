"""Folders of images through a Dataset: classes, labels, ignored files, ranks, resuming, and every kind of store."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from http_server import HttpObjects
from PIL import Image

from aiostream_data import (
    Dataset,
    DecodeError,
    NoMatchError,
    PlanError,
    StateMismatchError,
    image_classes,
    write_index,
)
from aiostream_data.codecs import decode_image
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

CLASSES = ["a", "a-b", "dog [1]"]


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2 + shade % 3, 4, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


FILES = {
    f"{name}/{file}": png(60 * label + number)
    for label, name in enumerate(CLASSES)
    for number, file in enumerate(("1.png", "2.PNG", "deep/er/3.png"))
}
IGNORED = ("top.png", "a/notes.txt", "a/.hidden.png", "a/.thumbs/1.png", ".git/1.png", "a/png")
EXPECTED: list[dict[str, Any]] = [
    {"image": FILES[path], "label": CLASSES.index(path.partition("/")[0]), "path": path} for path in sorted(FILES)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in {**FILES, **dict.fromkeys(IGNORED, b"ignored")}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


def labels(dataset: Dataset[Any]) -> dict[str, int]:
    return {row["path"]: row["label"] for row in dataset}


def test_images_are_labelled_by_their_folders_in_the_order_of_urls(folder: Path) -> None:
    for url in (folder, str(folder) + "/", f"file://{folder}"):
        assert list(Dataset.from_image_folder(url)) == EXPECTED
        assert image_classes(url) == CLASSES


def test_relative_paths_name_the_same_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list(Dataset.from_image_folder(".")) == EXPECTED
    monkeypatch.chdir(folder.parent)
    assert list(Dataset.from_image_folder(folder.name)) == EXPECTED
    assert list(Dataset.from_image_folder(f"./{folder.name}")) == EXPECTED


def test_a_batch_has_int64_labels(folder: Path) -> None:
    dataset = Dataset.from_image_folder(folder)
    assert dataset.element_spec["label"].dtype == np.int64
    batch = next(iter(dataset.batch(9)))
    assert batch["label"].dtype == np.int64
    assert batch["image"].tolist() == [row["image"] for row in EXPECTED]


def test_classes_can_be_chosen_in_any_order(folder: Path) -> None:
    dataset = Dataset.from_image_folder(folder, classes=["dog [1]", "a"])
    assert labels(dataset) == {path: int(path[0] == "a") for path in FILES if not path.startswith("a-b")}
    assert [row["path"] for row in dataset] == [path for path in sorted(FILES) if not path.startswith("a-b")]


def test_links_to_class_folders_are_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("linked")
    for number, name in enumerate(CLASSES):
        (root / f"link{number}").symlink_to(folder / name)
    assert labels(Dataset.from_image_folder(root)) == {
        row["path"].replace(CLASSES[row["label"]], f"link{row['label']}"): row["label"] for row in EXPECTED
    }


def test_true_decodes_and_a_function_decodes_as_it_likes(folder: Path) -> None:
    for row in Dataset.from_image_folder(folder, decode=True):
        np.testing.assert_array_equal(row["image"], decode_image(FILES[row["path"]]))
    small = Dataset.from_image_folder(folder, decode=partial(decode_image, mode="L", size=(5, 6)))
    assert next(iter(small.batch(9)))["image"].shape == (9, 5, 6, 1)


def test_an_image_that_cannot_be_decoded_is_named_or_skipped(folder: Path) -> None:
    (folder / "a" / "1.png").write_bytes(FILES["a/1.png"][:-30])
    with pytest.raises(DecodeError, match="cannot be decoded") as raised:
        list(Dataset.from_image_folder(folder, decode=True))
    assert any("a/1.png" in note for note in raised.value.__notes__)
    skipping = Dataset.from_image_folder(folder, decode=True, on_error="skip")
    assert [row["path"] for row in skipping] == [path for path in sorted(FILES) if path != "a/1.png"]


def test_every_run_resumes_everywhere(folder: Path) -> None:
    resumes_everywhere(Dataset.from_image_folder(folder, shuffle_shards=True, seed=3).shuffle(4, seed=1).batch(2))
    resumes_everywhere(Dataset.from_image_folder(folder, classes=CLASSES[1:]))


def test_ranks_have_equal_labels(folder: Path) -> None:
    found: dict[str, int] = {}
    for rank in range(3):
        with Dataset.from_image_folder(folder).open(rank=rank, world_size=3) as loader:
            found |= {row["path"]: row["label"] for row in loader}
    assert found == {row["path"]: row["label"] for row in EXPECTED}


def test_a_state_refuses_other_classes(folder: Path) -> None:
    dataset = Dataset.from_image_folder(folder)
    with dataset.open() as loader:
        next(loader)
        state = loader.state_dict()
    (folder / "aa").mkdir()
    (folder / "aa" / "1.png").write_bytes(png(1))
    with pytest.raises(StateMismatchError, match="classes"):
        dataset.open(state)


def test_origins_name_the_file_and_rows_can_be_fetched(folder: Path) -> None:
    dataset = Dataset.from_image_folder(folder).shuffle(5, seed=3)
    with dataset.open() as loader:
        element = next(loader)
        (origin,) = loader.origins()
        assert dataset.fetch(origin) == element


@pytest.mark.parametrize("kind", ["empty", "without images", "of one class"])
def test_a_class_without_images_is_refused(folder: Path, kind: str) -> None:
    (folder / "void").mkdir()
    if kind != "empty":
        (folder / "void" / "notes.txt").write_text("no image")
    given = {"classes": ["a", "void"]} if kind == "of one class" else {}
    with pytest.raises(NoMatchError, match="void"):
        list(Dataset.from_image_folder(folder, **cast(Any, given)))
    assert len(list(Dataset.from_image_folder(folder, classes=CLASSES))) == len(FILES)


def test_a_folder_without_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(png(1))
    for url in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoMatchError):
            Dataset.from_image_folder(url).open()


def test_a_function_that_returns_the_dataset_must_name_the_classes(folder: Path) -> None:
    outer = Dataset.from_tensor_slices([str(folder)])
    with pytest.raises(PlanError, match="classes=image_classes"):
        list(outer.interleave(Dataset.from_image_folder))
    inner = partial(Dataset.from_image_folder, classes=CLASSES)
    assert list(outer.interleave(inner)) == EXPECTED


def test_an_open_event_loop_does_not_prevent_the_listing_of_classes(folder: Path) -> None:
    async def first() -> Any:
        async with Dataset.from_image_folder(folder).open() as loader:
            return await anext(loader)

    assert asyncio.run(first()) == EXPECTED[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset.from_image_folder(cast(Any, ["a"])), "url must be the URL or path of one folder"),
        (lambda: Dataset.from_image_folder(""), "got an empty string"),
        (lambda: Dataset.from_image_folder("d", classes=[]), "classes must be different names"),
        (lambda: Dataset.from_image_folder("d", classes=["a", "a"]), "classes must be different names"),
        (lambda: Dataset.from_image_folder("d", classes="ab"), "classes must be a list"),
        (lambda: Dataset.from_image_folder("d", classes=["a/b"]), "got 'a/b'"),
        (lambda: Dataset.from_image_folder("d", classes=[".."]), r"got '\.\.'"),
        (lambda: Dataset.from_image_folder("d", decode=cast(Any, "RGB")), "decode must be True, None or a function"),
        (lambda: Dataset.from_image_folder("https://x/d"), "Pass index="),
        (lambda: Dataset.from_image_folder("d", seed=cast(Any, "x")), "seed must be"),
    ],
)
def test_invalid_arguments_are_refused_at_once(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


def test_memory_and_http_deliver_the_same_rows(http_objects: HttpObjects, memory_objects: None, tmp_path: Path) -> None:
    for path, data in FILES.items():
        memory.put(f"memory://images/{path}", data)
    memory.put("memory://images/a/.thumbs/1.png", b"ignored")
    assert list(Dataset.from_image_folder("memory://images")) == EXPECTED
    plain = {path: data for path, data in FILES.items() if "[" not in path}
    urls = [http_objects.put(f"/images/{path}", data) for path, data in plain.items()]
    index = tmp_path / "index.jsonl"
    write_index(urls, index)
    root = urls[0].rpartition("/a/")[0]
    assert image_classes(root, index=index) == CLASSES[:2]
    assert sorted(labels(Dataset.from_image_folder(root, index=index))) == sorted(plain)


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        for path, data in {**FILES, **dict.fromkeys(IGNORED, b"ignored")}.items():
            server.put(f"bucket/images/{path}", data)
        url = f"{scheme}://bucket/images"
        assert image_classes(url, storage_options=server.storage_options) == CLASSES
        dataset = Dataset.from_image_folder(url, storage_options=server.storage_options)
        with dataset.open() as loader:
            left = [next(loader) for _ in range(4)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            assert [*left, *loader] == EXPECTED
        chosen = Dataset.from_image_folder(url, classes=["dog [1]"], storage_options=server.storage_options)
        assert labels(chosen) == {path: 0 for path in FILES if path.startswith("dog")}
        server.put("bucket/images/void/notes.txt", b"no image")
        with pytest.raises(NoMatchError, match="'void' contains no image"):
            list(dataset)
