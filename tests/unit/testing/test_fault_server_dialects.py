"""The fault server speaks S3, GCS and HTTP as the stores do, told by plain requests and by the stores' own clients."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import socket
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from urllib.parse import quote
from xml.etree import ElementTree

import aiohttp
import pytest
from raw_client import RawAnswer, fetch

from aiostream_data._native import crc32c
from aiostream_data.errors import StoreUnreachableError
from aiostream_data.storage.translate import translate_error, translating
from aiostream_data.storage.wire.sigv4 import AwsKey, Signer
from aiostream_data.testing.fault_catalogue import BREAKS, LIES
from aiostream_data.testing.fault_rules import RuleBook
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.fault_serving import serving
from aiostream_data.testing.fault_site import FaultSite
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.listing import list_page
from aiostream_data.testing.object_api.reading import asked_range
from aiostream_data.testing.object_api.signatures import signed_headers

CONTENT = bytes(range(256))
KEYS = ["a", "a/1", "a/2", "a/b/3", "b/1", "c", "ä/日本", "z z&%"]
ACCOUNT = Account(key="AKID", secret="SECRET")


@pytest.fixture(scope="module")
def s3_running() -> Iterator[FaultServer]:
    with fault_server("s3") as server:
        yield from filled(server)


@pytest.fixture(scope="module")
def gcs_running() -> Iterator[FaultServer]:
    with fault_server("gcs") as server:
        yield from filled(server)


def filled(server: FaultServer) -> Iterator[FaultServer]:
    for key in KEYS:
        server.put(f"bucket/{key}", CONTENT)
    yield server


@pytest.fixture
def s3(s3_running: FaultServer) -> Iterator[FaultServer]:
    yield s3_running
    s3_running.set_rules()
    s3_running.set_accounts()


@pytest.fixture
def gcs(gcs_running: FaultServer) -> Iterator[FaultServer]:
    yield gcs_running
    gcs_running.set_rules()
    gcs_running.set_accounts()


def code_of(answer: RawAnswer) -> str:
    return ElementTree.fromstring(answer.body).findtext("Code") or ""


def list_s3(server: FaultServer, query: str) -> tuple[list[str], list[str], str | None]:
    tree = ElementTree.fromstring(fetch(server.endpoint_url, f"/bucket?list-type=2&{query}").body)
    space = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}
    keys = [item.text or "" for item in tree.findall("s3:Contents/s3:Key", space)]
    prefixes = [item.text or "" for item in tree.findall("s3:CommonPrefixes/s3:Prefix", space)]
    return keys, prefixes, tree.findtext("s3:NextContinuationToken", None, space)


@pytest.mark.parametrize(
    ("header", "asked"),
    [("bytes=0-0", (0, 1)), ("bytes=5-", (5, 10)), ("bytes=-3", (7, 10)), ("bytes=-30", (0, 10)),
     ("bytes=2-99", (2, 10)), ("", None), ("bytes=", None), ("bytes=4-2", None),
     ("bytes=0-1,3-4", None), ("lines=1-2", None)],
)  # fmt: skip
def test_ranges_are_read_as_http_has_them(header: str, asked: tuple[int, int] | None) -> None:
    assert asked_range(header, 10) == asked


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_ranges_outside_of_the_object_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(ValueError, match=r"range|byte"):
        asked_range(header, 10)


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
@pytest.mark.parametrize("delimiter", ["", "/", "b/"])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "none"])
def test_pages_together_are_the_whole_listing(limit: int, delimiter: str, prefix: str) -> None:
    keys = sorted(KEYS)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = list_page(keys, prefix=prefix, delimiter=delimiter, after=after, limit=limit)
        assert len(page.keys) + len(page.prefixes) <= limit
        found += sorted([*page.keys, *page.prefixes])
        after = page.after
    wanted = {rolled(key, prefix, delimiter) for key in keys if key.startswith(prefix)}
    assert found == sorted(wanted)


def rolled(key: str, prefix: str, delimiter: str) -> str:
    rest = key[len(prefix) :]
    if not delimiter or delimiter not in rest:
        return key
    return prefix + rest[: rest.index(delimiter) + len(delimiter)]


def test_s3_tells_etag_request_id_and_checksum(s3: FaultServer) -> None:
    answer = fetch(s3.endpoint_url, "/bucket/a", headers={"x-amz-checksum-mode": "ENABLED"})
    assert answer.one("ETag") == f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert answer.one("x-amz-request-id")
    assert b64decode(answer.one("x-amz-checksum-crc32")) == zlib.crc32(CONTENT).to_bytes(4, "big")
    assert fetch(s3.endpoint_url, "/bucket/a").all("x-amz-checksum-crc32") == []


def test_s3_honours_conditions_and_ranges(s3: FaultServer) -> None:
    etag = fetch(s3.endpoint_url, "/bucket/a").one("ETag")
    answer = fetch(s3.endpoint_url, "/bucket/a", headers={"Range": "bytes=-5", "If-Match": etag})
    assert (answer.status, answer.body) == (206, CONTENT[-5:])
    refused = fetch(s3.endpoint_url, "/bucket/a", headers={"If-Match": '"other"'})
    assert (refused.status, code_of(refused)) == (412, "PreconditionFailed")
    assert fetch(s3.endpoint_url, "/bucket/a", headers={"If-None-Match": etag}).status == 304
    outside = fetch(s3.endpoint_url, "/bucket/a", headers={"Range": "bytes=256-"})
    assert (outside.status, code_of(outside), outside.one("Content-Range")) == (416, "InvalidRange", "bytes */256")


def test_s3_names_what_is_missing(s3: FaultServer) -> None:
    for path, code in (
        ("/bucket/none", "NoSuchKey"),
        ("/none/a", "NoSuchBucket"),
        ("/none?list-type=2", "NoSuchBucket"),
    ):
        answer = fetch(s3.endpoint_url, path)
        assert (answer.status, code_of(answer)) == (404, code)
    assert fetch(s3.endpoint_url, "/bucket", method="HEAD").status == 200
    assert fetch(s3.endpoint_url, "/none", method="HEAD").status == 404


def test_s3_lists_in_pages_by_prefix_and_delimiter(s3: FaultServer) -> None:
    assert list_s3(s3, "") == (sorted(KEYS), [], None)
    assert list_s3(s3, "delimiter=/") == (["a", "c", "z z&%"], ["a/", "b/", "ä/"], None)
    assert list_s3(s3, "prefix=a/&delimiter=/") == (["a/1", "a/2"], ["a/b/"], None)
    assert list_s3(s3, "start-after=b/1")[0] == ["c", "z z&%", "ä/日本"]
    found: list[str] = []
    sizes, token = [], ""
    for _ in KEYS:
        keys, _, following = list_s3(s3, f"max-keys=3{token}")
        found += keys
        sizes.append(len(keys))
        if following is None:
            break
        token = f"&continuation-token={quote(following)}"
    assert sizes == [3, 3, 2]
    assert found == sorted(KEYS)
    assert code_of(fetch(s3.endpoint_url, "/bucket?list-type=2&continuation-token=%C3%A4")) == "InvalidArgument"


def test_s3_writes_keys_quoted_when_asked_to(s3: FaultServer) -> None:
    keys, _, _ = list_s3(s3, "encoding-type=url&prefix=z")
    assert keys == [quote("z z&%")]


@pytest.mark.parametrize(
    "target", ["/bucket/a", "/bucket/z%20z%26%25", "/bucket?list-type=2&prefix=%C3%A4%2F&delimiter=%2F"]
)
def test_s3_takes_right_signatures_only(s3: FaultServer, target: str) -> None:
    s3.set_accounts(ACCOUNT)
    host = s3.endpoint_url.removeprefix("http://")
    right = signed_headers(ACCOUNT, "GET", host, target)
    assert fetch(s3.endpoint_url, target, headers=right).status == 200
    refusals = {
        "SignatureDoesNotMatch": signed_headers(Account(key="AKID", secret="WRONG"), "GET", host, target),
        "InvalidAccessKeyId": signed_headers(Account(key="OTHER", secret="SECRET"), "GET", host, target),
        "RequestTimeTooSkewed": signed_headers(ACCOUNT, "GET", host, target, now_s=time.time() - 1000),
        "AccessDenied": {},
    }
    for code, headers in refusals.items():
        answer = fetch(s3.endpoint_url, target, headers=headers)
        assert (answer.status, code_of(answer)) == (403, code)
    other = fetch(s3.endpoint_url, "/bucket/c", headers=right)
    assert code_of(other) == "SignatureDoesNotMatch", "a signature is for one request"


def test_s3_takes_what_the_package_signs(s3: FaultServer) -> None:
    s3.set_accounts(Account(key="AKID", secret="SECRET", token="TOKEN"))
    host = s3.endpoint_url.removeprefix("http://")
    key = AwsKey("AKID", "SECRET", "TOKEN")
    headers = Signer("eu-central-1").headers(key, host, "/bucket/z%20z%26%25", extra={"range": "bytes=1-2"})
    answer = fetch(s3.endpoint_url, "/bucket/z%20z%26%25", headers={**headers, "Host": host})
    assert (answer.status, answer.body) == (206, CONTENT[1:3])


def test_s3_session_tokens_expire(s3: FaultServer) -> None:
    good = Account(key="AKID", secret="SECRET", token="NEW", expires_s=time.time() + 100)
    over = Account(key="AKID", secret="SECRET", token="OLD", expires_s=time.time() - 1)
    s3.set_accounts(over, good)
    host = s3.endpoint_url.removeprefix("http://")
    assert fetch(s3.endpoint_url, "/bucket/a", headers=signed_headers(good, "GET", host, "/bucket/a")).status == 200
    answer = fetch(s3.endpoint_url, "/bucket/a", headers=signed_headers(over, "GET", host, "/bucket/a"))
    assert (answer.status, code_of(answer)) == (400, "ExpiredToken")


def test_s3_presigned_urls_are_good_for_their_time(s3: FaultServer) -> None:
    import botocore.session
    from botocore.config import Config

    s3.set_accounts(ACCOUNT)
    settings = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = botocore.session.Session().create_client(
        "s3", "us-east-1", endpoint_url=s3.endpoint_url, aws_access_key_id="AKID", aws_secret_access_key="SECRET",
        config=settings,
    )  # fmt: skip
    url = client.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "z z&%"}, ExpiresIn=60)
    target = url.removeprefix(s3.endpoint_url)
    host = {"Host": s3.endpoint_url.removeprefix("http://")}
    assert fetch(s3.endpoint_url, target, headers=host).body == CONTENT
    late = target.replace("X-Amz-Date=20", "X-Amz-Date=19")
    assert fetch(s3.endpoint_url, late, headers=host).status == 403
    client.close()


def test_s3_refuses_credentials_by_rule(s3: FaultServer) -> None:
    for refused, wanted in (("expired", (400, "ExpiredToken")), ("denied", (403, "AccessDenied"))):
        s3.set_rules(Rule(Fault(refuse=refused)))  # type: ignore[arg-type]
        answer = fetch(s3.endpoint_url, "/bucket/a")
        assert (answer.status, code_of(answer)) == wanted


def test_s3_hides_an_error_in_a_200(s3: FaultServer) -> None:
    s3.set_rules(Rule(Fault(status=200, code="InternalError")))
    answer = fetch(s3.endpoint_url, "/bucket/a", headers={"Range": "bytes=0-9"})
    assert (answer.status, code_of(answer)) == (200, "InternalError")


def media(key: str, query: str = "") -> str:
    return f"/download/storage/v1/b/bucket/o/{quote(key, safe='')}?alt=media{query}"


def test_gcs_tells_generation_and_hashes_also_with_a_range(gcs: FaultServer) -> None:
    answer = fetch(gcs.endpoint_url, media("a/b/3"), headers={"Range": "bytes=3-5"})
    assert (answer.status, answer.body) == (206, CONTENT[3:6])
    assert int(answer.one("x-goog-generation")) > 0
    wanted = b64encode(crc32c(CONTENT).to_bytes(4, "big")).decode()
    assert f"crc32c={wanted}" in answer.all("x-goog-hash")
    told = json.loads(fetch(gcs.endpoint_url, "/storage/v1/b/bucket/o/a%2Fb%2F3").body)
    assert (told["name"], told["size"], told["crc32c"]) == ("a/b/3", "256", wanted)
    assert told["generation"] == answer.one("x-goog-generation")


def test_gcs_honours_generations_conditions_and_ranges(gcs: FaultServer) -> None:
    found = fetch(gcs.endpoint_url, media("a")).one("x-goog-generation")
    assert fetch(gcs.endpoint_url, media("a", f"&ifGenerationMatch={found}")).status == 200
    assert fetch(gcs.endpoint_url, media("a", "&ifGenerationMatch=1")).status == 412
    assert fetch(gcs.endpoint_url, media("a", f"&generation={found}")).status == 200
    assert fetch(gcs.endpoint_url, media("a", "&generation=1")).status == 404
    outside = fetch(gcs.endpoint_url, media("a"), headers={"Range": "bytes=256-300"})
    assert (outside.status, outside.one("Content-Range")) == (416, "bytes */256")


def test_gcs_names_what_is_missing(gcs: FaultServer) -> None:
    missing = fetch(gcs.endpoint_url, media("none"))
    assert (missing.status, json.loads(missing.body)["error"]["code"]) == (404, 404)
    bucket = fetch(gcs.endpoint_url, "/storage/v1/b/none/o")
    assert (bucket.status, json.loads(bucket.body)["error"]["message"]) == (404, "The specified bucket does not exist.")


def test_gcs_lists_in_pages_by_prefix_and_delimiter(gcs: FaultServer) -> None:
    def ask(query: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(fetch(gcs.endpoint_url, f"/storage/v1/b/bucket/o?{query}").body)
        return found

    rolled_up = ask("delimiter=/")
    assert rolled_up["prefixes"] == ["a/", "b/", "ä/"]
    found: list[str] = []
    token = ""
    for _ in KEYS:
        page = ask(f"maxResults=3{token}")
        found += [item["name"] for item in page["items"]]  # type: ignore[attr-defined]
        if "nextPageToken" not in page:
            break
        token = f"&pageToken={page['nextPageToken']}"
    assert found == sorted(KEYS)
    assert "items" not in ask("prefix=none")
    assert len(ask("startOffset=b&endOffset=d")["items"]) == 2  # type: ignore[arg-type]


def test_gcs_takes_known_tokens_only(gcs: FaultServer) -> None:
    gcs.set_accounts(Account(token="GOOD"), Account(token="OVER", expires_s=time.time() - 1))
    for token, status in (("GOOD", 200), ("OVER", 401), ("NONE", 401)):
        answer = fetch(gcs.endpoint_url, media("a"), headers={"Authorization": f"Bearer {token}"})
        assert answer.status == status
        assert bool(answer.all("WWW-Authenticate")) == (status == 401)
    assert fetch(gcs.endpoint_url, media("a")).status == 401


def test_gcs_is_read_by_its_xml_interface_too(gcs: FaultServer) -> None:
    answer = fetch(gcs.endpoint_url, "/bucket/a/b/3", headers={"Range": "bytes=0-1"})
    assert (answer.status, answer.body) == (206, CONTENT[:2])
    changed = fetch(gcs.endpoint_url, "/bucket/a/b/3", headers={"x-goog-if-generation-match": "1"})
    assert (changed.status, code_of(changed)) == (412, "PreconditionFailed")
    assert code_of(fetch(gcs.endpoint_url, "/bucket/none")) == "NoSuchKey"
    head = fetch(gcs.endpoint_url, "/bucket/a", method="HEAD")
    assert (head.status, head.one("x-goog-stored-content-length"), head.body) == (200, "256", b"")


def test_http_takes_passwords_and_tokens() -> None:
    with fault_server("http") as server:
        server.put("x", CONTENT)
        server.set_accounts(Account(key="user", secret="word"), Account(token="TOKEN"))
        right = "Basic " + b64encode(b"user:word").decode()
        wrong = "Basic " + b64encode(b"user:else").decode()
        found = [fetch(server.endpoint_url, "/x", headers={"Authorization": told}).status
                 for told in (right, "Bearer TOKEN", wrong, "Bearer OTHER")]  # fmt: skip
    assert found == [200, 200, 401, 401]


def test_http_honours_if_range() -> None:
    with fault_server("http") as server:
        server.put("x", CONTENT)
        etag = fetch(server.endpoint_url, "/x").one("ETag")
        for condition, status in ((etag, 206), ('"other"', 200)):
            answer = fetch(server.endpoint_url, "/x", headers={"Range": "bytes=0-1", "If-Range": condition})
            assert answer.status == status


async def read_with_aiohttp(fault: Fault) -> bytes | str:
    """Return the body as aiohttp has it, or the name of its error."""
    site = FaultSite("http")
    site.objects.put("x", CONTENT)
    try:
        async with serving(site) as url, aiohttp.ClientSession() as session:
            site.rules = RuleBook([Rule(fault)])
            try:
                async with session.get(f"{url}/x", headers={"Range": "bytes=10-19"}) as answer:
                    assert answer.status in (200, 206)
                    return await answer.read()
            except aiohttp.ClientError as error:
                return type(error).__name__
    finally:
        site.close()


@pytest.mark.parametrize("name", [name for name in BREAKS if name != "closed without a word"])
def test_aiohttp_sees_every_break_as_an_error(name: str) -> None:
    assert isinstance(asyncio.run(read_with_aiohttp(BREAKS[name])), str)


@pytest.mark.parametrize(
    "name", ["short body", "short chunked body", "another range", "wrong Content-Range", "no Content-Range"]
)
def test_aiohttp_takes_a_lie_for_a_body(name: str) -> None:
    """So that whoever uses it has to look closer."""
    assert isinstance(asyncio.run(read_with_aiohttp(LIES[name])), bytes)


def test_a_site_is_served_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def read() -> None:
        site = FaultSite("http")
        site.objects.put("large", CONTENT * 4096)
        site.objects.put("x", CONTENT)
        async with serving(site) as url, aiohttp.ClientSession() as session:
            async with session.get(f"{url}/large") as answer:
                assert await answer.read() == CONTENT * 4096
            site.rules = RuleBook([Rule(Fault(reset_at="middle"))])
            with pytest.raises(aiohttp.ClientError):
                async with session.get(f"{url}/x") as answer:
                    await answer.read()
        site.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(read())


@pytest.mark.parametrize("fault", [Fault(chunked=True), Fault(interim=2), Fault(slow_head_s=0.0005), Fault()])
def test_aiohttp_reads_unusual_answers(fault: Fault) -> None:
    assert asyncio.run(read_with_aiohttp(fault)) == CONTENT[10:20]


@pytest.mark.parametrize("name", ["two lengths", "not HTTP", "a head without end"])
def test_an_answer_that_aiohttp_cannot_parse_is_a_broken_connection_and_no_refusal(name: str) -> None:
    async def read() -> None:
        site = FaultSite("http")
        site.objects.put("x", CONTENT)
        site.rules = RuleBook([Rule(LIES[name])])
        try:
            async with serving(site) as url, aiohttp.ClientSession() as session:
                with translating(f"{url}/x", translate_error):
                    async with session.get(f"{url}/x") as answer:
                        await answer.read()
        finally:
            site.close()

    with pytest.raises(StoreUnreachableError, match="malformed HTTP answer"):
        asyncio.run(read())


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_ends_while_clients_connect_leaves_no_socket(steps: int) -> None:
    """End the server ``steps`` steps of the loop after the clients have connected."""

    async def connect() -> None:
        site = FaultSite("http")
        async with serving(site) as url:
            await asyncio.sleep(0.01)  # the server waits for a connection
            host, port = url.removeprefix("http://").split(":")
            clients = [socket.create_connection((host, int(port))) for _ in range(20)]
            for _ in range(steps):
                await asyncio.sleep(0)
        for client in clients:
            client.close()
        site.close()

    asyncio.run(connect())
    gc.collect()
