"""The benchmark of a folder of images measures every contender, and accepts only the right images."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from benchmarks import images, run
from benchmarks.pipeline import cloud_listing, cloud_server, image_folder
from benchmarks.pipeline.cloud_listing import LISTING, write_listing
from benchmarks.scenario import Contender, Scenario
from benchmarks.scenarios.p3d import FAR_CEILING, P3D
from benchmarks.worker import measure

ROWS = 5
LOCAL = ["bare pool", "from_files local", "from_iterable local"]
FAR = "from_files s3 20 ms"
OF_DECODERS = [
    f"benchmarks.compare.{name}" for name in ("p3_function", "p3_ceiling", "p3d_aiohttp", "p3d_aiostream_data")
]
"""Modules that import the decoders."""

has_nginx = (
    shutil.which("nginx", path="/usr/bin:/usr/sbin") and (cloud_server.NGINX_MODULES / cloud_server.LUA[-1]).exists()
)


def decode_jpeg(jpeg: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(jpeg)))


def resize(image: Any, size: tuple[int, int], interpolation: int) -> Any:
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling(interpolation)))


def measure_here(scenario: Scenario, contender: Contender, rows: int, data: Path) -> dict[str, Any]:
    return measure(scenario, contender, scenario.work(rows, data))


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder with few images, which Pillow decodes in this process."""
    folder = tmp_path / f"images-{images.IMAGES}-v{images.LAYOUT}"
    folder.mkdir()
    for number in range(ROWS):
        images._write(folder / f"{number:05}.jpg", number)
    (folder / "complete").touch()
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(decode_jpeg=decode_jpeg))
    bilinear = int(Image.Resampling.BILINEAR)
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setNumThreads=int, resize=resize, INTER_LINEAR=bilinear))
    monkeypatch.setattr(image_folder, "P3D", replace(P3D, warm_up_rows=2))
    monkeypatch.setattr(run, "_one_run", measure_here)
    for name in OF_DECODERS:
        sys.modules.pop(name, None)
    yield tmp_path
    for name in OF_DECODERS:
        sys.modules.pop(name, None)


def measured(data: Path, *contenders: str) -> dict[str, Any]:
    out = data / "p3d.json"
    image_folder.main(["--images", str(ROWS), "--runs", "1", "--only", *contenders, "--out", str(out)])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_every_local_contender_reads_all_images(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(data, *LOCAL)
    assert list(result["contenders"]) == LOCAL
    for each in result["contenders"].values():
        (one_run,) = each["runs"]
        assert 0 < one_run["first_batch_s"] <= one_run["wall_s"]
    assert result["circumstances"]["python"]
    assert "1.00 of the bare pool" in capsys.readouterr().out


@pytest.mark.parametrize(
    "has_modules", [False, pytest.param(True, marks=pytest.mark.skipif(not has_nginx, reason="needs nginx with Lua"))]
)
def test_the_pattern_of_a_bucket_finds_all_images(
    data: Path, monkeypatch: pytest.MonkeyPatch, has_modules: bool
) -> None:
    monkeypatch.setattr(cloud_listing, "PAGE_KEYS", 2)
    if not has_modules:
        monkeypatch.setattr(cloud_server, "NGINX_MODULES", data)
    (one_run,) = measured(data, FAR)["contenders"][FAR]["runs"]
    assert one_run["first_batch_s"] > 2 * 0.02  # a listing, and an object


def test_the_upper_bound_over_the_network_reads_all_images(data: Path) -> None:
    pytest.importorskip("uvloop")
    (one_run,) = measured(data, FAR_CEILING)["contenders"][FAR_CEILING]["runs"]
    assert one_run["first_batch_s"] > 0.02


def test_an_image_in_the_wrong_file_is_an_error(data: Path) -> None:
    first, second, *_ = images.image_folder(data, ROWS).paths
    second.unlink()
    second.hardlink_to(first)
    with pytest.raises(SystemExit, match="expected"):
        measured(data, "from_files local")


def test_the_pages_of_a_listing_name_every_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_listing, "PAGE_KEYS", 2)
    paths = [tmp_path / f"{number}.jpg" for number in range(ROWS)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(number))
    write_listing(tmp_path, paths)
    listed, token = [], "0"
    while token:
        page = ElementTree.fromstring((tmp_path / LISTING / token).read_text())
        listed += [(each.findtext("{*}Key"), each.findtext("{*}Size")) for each in page.findall("{*}Contents")]
        token = page.findtext("{*}NextContinuationToken") or ""
        assert page.findtext("{*}IsTruncated") == str(bool(token)).lower()
    assert listed == [(f"{tmp_path.name}/{path.name}", str(number)) for number, path in enumerate(paths)]
