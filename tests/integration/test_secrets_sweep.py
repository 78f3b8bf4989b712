"""Pipelines with secrets in every place: none of them is in any text that the package produces."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from pprint import pformat
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from http_server import HttpFault, HttpObjects

import aiostream_data as asd
from aiostream_data.errors import AiostreamError, CorruptRecordError, PlanError, StorageError

SECRETS = {
    place: f"zq{number}{place}Secret"
    for number, place in enumerate(
        ("user", "password", "signature", "code", "other", "fragment", "header", "option", "nested", "fresh", "token")
    )
}
OPTIONS = {"headers": {"x-key": SECRETS["header"]}, "retry_attempts": 2}


def signed(url: str, signature: str = SECRETS["signature"], code: str = SECRETS["code"]) -> str:
    """Return a URL with a secret in every place."""
    scheme, _, rest = url.partition("://")
    query = f"X-Amz-Signature={signature}&%63ode={code}&id={SECRETS['other']}"
    return f"{scheme}://{SECRETS['user']}:{SECRETS['password']}@{rest}?{query}#{SECRETS['fragment']}"


def texts_of(error: BaseException) -> Iterator[str]:
    """Yield every text of an error and of its causes, those that are not shown included."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield from (str(one), repr(one), repr(one.args), *getattr(one, "__notes__", ()))
        yield "".join(traceback.format_exception(one))
        if isinstance(one, AiostreamError):
            yield from (repr(vars(one)), repr(pickle.dumps(one)))
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def check(*texts: object) -> None:
    found = [(place, str(text)[:300]) for text in texts for place, secret in SECRETS.items() if secret in str(text)]
    assert found == []


def failure_of(call: Callable[[], object], kind: type[BaseException] = AiostreamError) -> BaseException:
    with pytest.raises(kind) as caught:
        call()
    check(*texts_of(caught.value))
    return caught.value


@pytest.fixture(autouse=True)
def _nothing_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    check(caplog.text)


@pytest.fixture
def shards(http_objects: HttpObjects, tmp_path: Path) -> list[str]:
    urls = []
    for shard in "ab":
        path = tmp_path / f"{shard}.tfrecord"
        with asd.TFRecordWriter(path) as writer:
            for number in range(6):
                writer.write(b"%s%d" % (shard.encode(), number))
        urls.append(http_objects.put(f"/{shard}.tfrecord", path.read_bytes()))
    return urls


def refuse(record: bytes) -> bytes:
    raise ValueError("refused")


def read_with(url: str, options: dict[str, Any]) -> None:
    with asd.Dataset.from_tfrecord(url, storage_options=options).open() as loader:
        list(loader)
    raise PlanError("an option that nobody looks at is no error of a store")


def looks_of(loader: asd.Loader[Any]) -> list[object]:
    origins = loader.origins()
    return [
        *(repr(loader), loader.dump(), repr(loader.report()), str(loader.report()), repr(loader.stats())),
        *(json.dumps(loader.state_dict()), repr(origins), *map(str, origins), pformat(origins)),
        *(json.dumps(origin.as_dict()) for origin in origins),
        *(repr(pickle.dumps(origin)) for origin in origins),
    ]


@pytest.mark.parametrize("options", [{}, {"debug": True}], ids=["run", "debug"])
def test_a_run_and_its_states_show_no_secret(shards: list[str], options: dict[str, Any], tmp_path: Path) -> None:
    dataset = (
        asd.Dataset.from_tfrecord([signed(url) for url in shards], storage_options=OPTIONS).shuffle(4, seed=1).batch(2)
    )
    check(repr(dataset), str(dataset), dataset.explain(), repr(dataset.plan), pformat(dataset.plan))
    check(dataset.memory_bound(), repr(dataset.memory_bound()))
    with dataset.open(block=[signed(shards[0])], shard_cache=tmp_path / "cache", **options) as loader:
        batch = next(iter(loader))
        check(*looks_of(loader))
        origin = loader.origins()[0]
        assert dataset.fetch(json.loads(json.dumps(origin.as_dict()))) == batch[0]
        loader.block([origin])
        check(loader.state_dict(), loader.dump(), loader.report())
        rest = [row for batch in loader for row in batch]
    assert sorted([*batch, *rest]) == [b"b%d" % number for number in range(6)]
    check(*(str(path) for path in (tmp_path / "cache").rglob("*")))
    check(*(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()))


def test_rows_stay_blocked_under_a_freshly_signed_url(shards: list[str]) -> None:
    def dataset(signature: str, code: str) -> asd.Dataset[bytes]:
        return asd.Dataset.from_tfrecord([signed(url, signature, code) for url in shards], storage_options=OPTIONS)

    before, after = dataset(SECRETS["signature"], SECRETS["code"]), dataset(SECRETS["fresh"], SECRETS["token"])
    with before.open(block=[(signed(shards[1]), 2)]) as loader:
        first = [next(iter(loader)) for _ in range(3)]
        loader.block([signed(shards[1], SECRETS["fresh"], SECRETS["token"])])
        state = json.loads(json.dumps(loader.state_dict()))
    check(state)
    with after.open(state) as loader:
        assert first + list(loader) == [b"a%d" % number for number in range(6)]


def test_two_objects_that_only_a_query_value_tells_apart_are_blocked_one_by_one(http_objects: HttpObjects) -> None:
    http_objects.put("/get", b"one\ntwo\n")
    urls = [f"{http_objects.endpoint_url}/get?id=zq{name}Secret&sig={SECRETS['signature']}" for name in "xy"]
    dataset = asd.Dataset.from_text(urls)
    with dataset.open() as loader:
        rows = [(row, loader.origins()[0]) for row in loader]
    assert len({origin.url for _, origin in rows}) == 2
    with dataset.open(block=[rows[0][1]]) as loader:
        assert list(loader) == ["two", "one", "two"]
        state = json.dumps(loader.state_dict())
    assert "zqxSecret" not in state + repr(rows)
    with dataset.open(block=[urls[1]]) as loader:
        assert list(loader) == ["one", "two"]


@pytest.mark.parametrize(
    "fault", [HttpFault(status=403, body=b"no"), HttpFault(status=404), HttpFault(cut_after=3), HttpFault(status=500)]
)
def test_an_error_of_a_store_shows_no_secret(shards: list[str], http_objects: HttpObjects, fault: HttpFault) -> None:
    http_objects.faults.extend([fault] * 20)
    failure_of(lambda: list(asd.Dataset.from_tfrecord(signed(shards[0]), storage_options=OPTIONS)), StorageError)


def test_damage_and_functions_that_fail_show_no_secret(
    shards: list[str], http_objects: HttpObjects, tmp_path: Path
) -> None:
    data = bytearray(http_objects.objects["/a.tfrecord"])
    data[14] ^= 1
    http_objects.objects["/a.tfrecord"] = bytes(data)
    damaged = asd.Dataset.from_tfrecord(signed(shards[0]), storage_options=OPTIONS)
    failure_of(lambda: list(damaged), CorruptRecordError)
    whole = asd.Dataset.from_tfrecord(signed(shards[1]), storage_options=OPTIONS).map(refuse)
    failure_of(lambda: list(whole), ValueError)
    log = tmp_path / "bad.jsonl"
    with whole.open(on_error="skip", dead_letters=log) as loader:
        assert list(loader) == []
        check(loader.state_dict(), loader.report())
    check(log.read_text())
    assert len(list(asd.Dataset.from_tfrecord(signed(shards[1]), storage_options=OPTIONS).map(len).replay(log))) == 6


def test_a_state_of_other_signed_urls_is_refused_without_secrets(shards: list[str]) -> None:
    with asd.Dataset.from_tfrecord(signed(shards[0])).open() as loader:
        next(iter(loader))
        state = loader.state_dict()
    failure_of(lambda: asd.Dataset.from_tfrecord([signed(url) for url in shards]).open(state).close())


def test_signed_urls_as_elements_do_not_enter_a_state(shards: list[str]) -> None:
    dataset = asd.Dataset.from_iterable([signed(url) for url in shards]).interleave(asd.Dataset.from_tfrecord)
    with dataset.open() as loader:
        next(iter(loader))
        check(loader.state_dict(), loader.origins(), dataset.explain())


def test_an_index_holds_no_secret(shards: list[str], tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert asd.write_index([signed(url).replace(f"&id={SECRETS['other']}", "") for url in shards], index) == 2
    check(index.read_text())
    assert len(list(asd.Dataset.from_tfrecord(index=index))) == 12


@pytest.mark.parametrize(
    "options",
    [
        *({name: SECRETS["option"]} for name in ("hedge", "reader", "verify", "max_connections", "read_timeout")),
        *({name: SECRETS["option"]} for name in ("retry_total_s", "retry_attempts", "max_bytes_per_second", "hedeg")),
        {"headers": SECRETS["option"]},
        {"headers": {"x-key": SECRETS["header"] + "\r\nx: y"}},
        {"http://": {"retry_attempst": SECRETS["nested"], "headers": {"a": 5}}},
        {"client_kwargs": {"trust_evn": SECRETS["nested"]}},
    ],
)
def test_an_option_that_is_refused_is_shown_without_its_value(shards: list[str], options: dict[str, Any]) -> None:
    failure_of(lambda: read_with(shards[0], options))


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("s3", {"key": SECRETS["user"], "secrte": SECRETS["option"]}),
        ("s3", {"secret": SECRETS["option"], "client_kwargs": {"endpoint_url": SECRETS["nested"]}}),
        ("s3", {"config_kwargs": {"s3": {"addressing_style": SECRETS["nested"]}}, "key": "a", "secret": "b"}),
        ("gs", {"token": SECRETS["token"] + ".json"}),
        ("gs", {"token": {"private_key": SECRETS["nested"]}}),
        ("gs", {"tokne": SECRETS["option"], "endpoint_url": f"http://u:{SECRETS['password']}@127.0.0.1:1"}),
    ],
)
def test_misspelt_options_of_cloud_stores_are_not_quoted(scheme: str, options: dict[str, Any]) -> None:
    url = f"{scheme}://{SECRETS['user']}:{SECRETS['password']}@bucket/key"
    failure_of(lambda: list(asd.Dataset.from_text(url, storage_options={**options, "retry_total_s": 0})))


class Chatty(AbstractFileSystem):  # type: ignore[misc]
    """A file system whose errors quote everything that it was given."""

    protocol = "chatty"
    cachable = False

    def _fail(self, path: str) -> Any:
        try:
            raise KeyError(f"login {self.storage_options}")
        except KeyError as error:
            note = RuntimeError(f"chatty://{SECRETS['user']}:{SECRETS['password']}@{path}?token={SECRETS['token']}")
            note.add_note(f"with {self.storage_options!r}")
            raise note from error

    def info(self, path: str, **_: Any) -> Any:
        return self._fail(path)

    def glob(self, path: str, **_: Any) -> Any:
        return self._fail(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return self._fail(path)


def test_the_words_of_a_library_lose_the_secrets_in_them() -> None:
    fsspec.register_implementation("chatty", Chatty, clobber=True)
    options = {"login": SECRETS["option"], "deep": {"headers": [{"auth": SECRETS["header"]}]}, "retry_total_s": 0}
    for pattern in ("chatty://bucket/key", "chatty://bucket/*.txt"):
        error = failure_of(lambda pattern=pattern: list(asd.Dataset.from_text(pattern, storage_options=options)))  # type: ignore[misc]
        assert "RuntimeError" in "".join(traceback.format_exception(error))
    del options["retry_total_s"]
    failure_of(lambda: asd.TFRecordWriter("chatty://bucket/key", storage_options=options), OSError)


@pytest.mark.parametrize("prefix", ["simplecache::", "filecache::zip://a::"])
def test_chained_urls_are_refused_without_their_secrets(prefix: str) -> None:
    failure_of(lambda: list(asd.Dataset.from_text(prefix + signed("http://127.0.0.1:1/x"))))


def test_an_origin_cleans_what_it_is_made_of() -> None:
    origin = asd.Origin(url=signed("https://host/a"), index=1, epoch=0, offset=None, seed=0, row={})
    check(str(origin), repr(origin), origin.as_dict(), origin.url, asd.Origin.from_dict(origin.as_dict()))
    assert asd.Origin.from_dict(origin.as_dict()) == origin


@pytest.mark.parametrize(
    "call",
    [
        lambda url, _: list(asd.Dataset.range(3).map(refuse).open(on_error="skip", dead_letters=url)),
        lambda url, _: list(asd.Dataset.range(3).map(refuse, on_error=asd.Quarantine(url)).open()),
        lambda url, _: list(asd.Dataset.range(3).shuffle(2, spill=url).open()),
        lambda url, _: asd.Dataset.range(3).map(refuse).replay(url),
        lambda url, _: asd.TFRecordWriter("memory://x", url),
        lambda url, _: asd.Dataset.from_tfrecord("x", compression=url),
        lambda url, _: asd.Dataset.range(3).open(block=[(url, "x")]),
        lambda url, _: asd.Dataset.range(3).open(block=[{"url": url}]),
        lambda url, folder: asd.write_index(url, folder / "index", storage_options={"retry_total_s": 0}),
        lambda url, _: asd.TFRecordWriter(url),
    ],
)
def test_a_url_in_a_wrong_place_is_refused_without_its_secrets(
    call: Callable[[str, Path], object], tmp_path: Path
) -> None:
    failure_of(lambda: call(signed("https://127.0.0.1:9/x"), tmp_path))
