"""No secret of a URL survives in what is shown of it, wherever in the URL and in which text it stands."""

from __future__ import annotations

import re
import time
import traceback
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiostream_data.errors import LibraryError, StorageError
from aiostream_data.object_names import object_name
from aiostream_data.redaction import Secrets
from aiostream_data.safe_url import safe_text, safe_url, shorten

NAMES_A_HOST = re.compile(r"@[^/?#]*/")
"""What stands between these characters of a raw password is the host of the URL, for every parser."""

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
WINDOW = 8
"""Characters of a secret that must not stand together in the output."""

bodies = st.text(LETTERS + "0123456789", min_size=10, max_size=30).map(lambda body: f"zQ{body}")
odd = st.text(LETTERS + "0123456789/+=-_.~!$*()", min_size=8, max_size=30).map(lambda body: f"zQ{body}Qz")
passwords = (
    st.text(LETTERS + "0123456789/?#@:+=-_.~!$*", min_size=8, max_size=30)
    .map(lambda body: f"zQ{body}Qz")
    .filter(lambda password: not NAMES_A_HOST.search(password))
)
schemes = st.sampled_from(["https", "http", "s3", "gs", "ftp", "hdfs", "HTTPS", "s3a", "webdav+https"])
hosts = st.sampled_from(["host", "h.example.org:8080", "[::1]:80", "bucket"])
paths = st.sampled_from(["", "/", "/a/b.tfrecord", "/a@2x/b:c.bin", "/dt=2024/part-?.bin", "/a/*.gz"])
IN_PATH = ("backslash", "encoded query")
KNOWN_NAMES = """
    sig code sas hmac pwd pass jwt session ticket hdnts token X-Amz-Signature Policy id page part x a.b
"""
known_names = KNOWN_NAMES.split()
percent_encoded = st.sampled_from(known_names).map(lambda name: "".join(f"%{ord(letter):02x}" for letter in name))
names = st.one_of(st.sampled_from(known_names), percent_encoded, st.text(LETTERS, min_size=1, max_size=6))


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a URL and the secret in it."""
    scheme, host, path = draw(schemes), draw(hosts), draw(paths)
    where = draw(
        st.sampled_from(["password", "raw password", "user", "query", "bare", "fragment", "token", "nested", *IN_PATH])
    )
    before = "".join(f"{draw(names)}={draw(bodies)}&" for _ in range(draw(st.integers(0, 2))))
    secret = draw({"raw password": passwords, "query": odd, "fragment": odd}.get(where, bodies))
    if where in ("bare", "token", *IN_PATH):
        scheme = scheme if scheme.lower().startswith("http") else "https"
    url = {
        "password": f"{scheme}://user:{quote(secret, safe='')}@{host}{path}",
        "raw password": f"{scheme}://user:{secret}@{host}{path.replace('@', '')}",
        "user": f"{scheme}://{secret}@{host}{path}",
        "query": f"{scheme}://{host}{path}?{before}{draw(names)}={secret}",
        "bare": f"{scheme}://{host}{path}?{secret}",
        "fragment": f"{scheme}://{host}{path}?{before}a=b#t={secret}",
        "token": f"{scheme}://{host}/hdnts=exp=1~acl=*~hmac={secret}/x",
        "backslash": f"{scheme}://{host}{path.partition('?')[0]}\\@{secret}@x/",
        "encoded query": f"{scheme}://{host}{path}%3{draw(st.sampled_from('fF'))}{draw(names)}={secret}",
        "nested": f"https://proxy/?url={quote(f'{scheme}://user:{secret}@{host}/x', safe='')}",
    }[where]
    chain = draw(
        st.sampled_from(["", "simplecache::", "zip://inner.zip::", "https://u:word@proxy/", "filecache::zip://x::"])
    )
    return chain + url, secret


def survives(secret: str, text: str) -> bool:
    forms = {secret, quote(secret, safe="")}
    return any(form[at : at + WINDOW] in text for form in forms for at in range(len(form) - WINDOW + 1))


@given(planted())
@example(("s3://AK:SECRETab/cd+ef@bucket/key", "SECRETab/cd+ef"))
@example(("https://h/x?%73ig=SECRETabcd", "SECRETabcd"))
@example(("simplecache::http://u:SECRETabcd@h/x", "SECRETabcd"))
@example(("//u:SECRETabcd@h/x?a=b", "SECRETabcd"))
@example(("//u:word@h/simplecache::s3://k:SECRETabcd@h/x", "SECRETabcd"))
def test_no_secret_survives_in_a_shown_url(case: tuple[str, str]) -> None:
    url, secret = case
    for shown in (safe_url(url), object_name(url)):
        assert not survives(secret, shown)
    assert safe_url(safe_url(url)) == safe_url(url)
    assert object_name(object_name(url)) == object_name(url)
    assert not survives(secret, safe_url(object_name(url)))


@given(
    planted(),
    st.sampled_from(["", "cannot read ", "Invalid bucket name ", "URL=", "('", '{"url":"', "<Error>", "see: "]),
    st.sampled_from(["", " and more", "', 5)", '"}', "</Error>", ", retry", "\nnext line"]),
    st.booleans(),
)
def test_no_secret_survives_in_a_shown_text(case: tuple[str, str], before: str, after: str, escaped: bool) -> None:
    url, secret = case
    text = before + (url.replace("/", "\\/") if escaped else url) + after
    shown = safe_text(text)
    assert not survives(secret, shown)
    assert safe_text(shown) == shown
    assert not survives(secret, shorten(text))


@given(st.dictionaries(st.text(LETTERS, min_size=1, max_size=10), odd, min_size=1), st.text(max_size=20), st.booleans())
def test_no_option_survives_in_a_text(options: dict[str, str], text: str, nested: bool) -> None:
    given_options = (
        {"client_kwargs": {"headers": [options]}} if nested else {f"x_{name}": options[name] for name in options}
    )
    secrets = Secrets(given_options)
    for value in options.values():
        for form in (value, quote(value, safe=""), repr(value)):
            assert not survives(value, secrets.hidden_in(f"{text} {form}{text}"))


@given(st.text(max_size=60))
def test_any_text_is_taken(text: str) -> None:
    for url in (text, f"//{text}", f"//u:p@{text}", f"https://{text}", f"s3://{text}", f"a::{text}://{text}"):
        assert safe_url(safe_url(url)) == safe_url(url)
        assert object_name(object_name(url)) == object_name(url)
        assert safe_text(safe_text(url)) == safe_text(url)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "+",
        ":",
        "a:",
        "=",
        "://",
        "a://",
        "***",
        "token",
        "token=",
        "<a",
        ")",
        "@",
        "/;",
        "?#",
        "%3a",
        "//",
        "//a:",
        "%25",
        "\\",
    ],
)
def test_long_texts_take_linear_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    for how in (safe_text, safe_url, object_name):
        how(text)
        how(f"https://{text}")
    assert time.process_time() - started < 10


def fail_because_of(cause: Exception, reason: str) -> None:
    try:
        raise cause
    except ExceptionGroup as group:
        raise StorageError("s3://bucket/key", reason) from group


def test_causes_of_libraries_lose_their_secrets_and_keep_their_place() -> None:
    secret = "zQsecretQz"
    inner = ExceptionGroup("two failed", [OSError(f"login {secret}"), ValueError("fine")])
    with pytest.raises(StorageError) as caught:
        fail_because_of(inner, f"failed with {secret}")
    error = caught.value
    Secrets({"deep": [{"login": secret}]}).clean(error)
    assert isinstance(error.__cause__, LibraryError)
    assert error.__cause__.__traceback__ is inner.__traceback__
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert secret not in shown
    assert "ExceptionGroup: two failed" in shown
