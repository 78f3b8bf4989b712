"""Rules take the requests that they describe, and no others."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from aiostream_data.testing import fault_control
from aiostream_data.testing.fault_catalogue import EVERY_FAULT, chaos
from aiostream_data.testing.fault_rules import RuleBook
from aiostream_data.testing.fault_site import FaultSite
from aiostream_data.testing.faults import Facts, Fault, Rule, place

FAULT = Fault(status=503)
READ = Facts("get", "GET", "bucket/key", 0, 100)


def taken(rule: Rule, requests: list[Facts], seed: int = 0) -> list[bool]:
    book = RuleBook([rule], seed)
    return [book.choose(facts) is not None for facts in requests]


def test_a_rule_takes_by_kind_method_name_and_range() -> None:
    head = Facts("head", "HEAD", "bucket/key", 0, 100)
    other = Facts("get", "GET", "bucket/deep/other", 200, 300)
    requests = [READ, head, other]
    assert taken(Rule(FAULT), requests) == [True, True, True]
    assert taken(Rule(FAULT, kind="get"), requests) == [True, False, True]
    assert taken(Rule(FAULT, method="HEAD"), requests) == [False, True, False]
    assert taken(Rule(FAULT, key="bucket/*e*"), requests) == [True, True, True]
    assert taken(Rule(FAULT, key="*/other"), requests) == [False, False, True]
    assert taken(Rule(FAULT, touches=(99, 200)), requests) == [True, True, False]
    assert taken(Rule(FAULT, touches=(299, 300)), requests) == [False, False, True]


def test_a_rule_counts_the_requests_that_it_is_about() -> None:
    requests = [READ] * 8
    assert taken(Rule(FAULT, times=2), requests) == [True, True] + [False] * 6
    assert taken(Rule(FAULT, after=3), requests) == [False] * 3 + [True] * 5
    assert taken(Rule(FAULT, after=1, every=3, times=2), requests) == [False, True, False, False, True] + [False] * 3


def test_requests_are_counted_together_by_object_or_by_range() -> None:
    one, two = READ, Facts("get", "GET", "bucket/key", 100, 200)
    three = Facts("get", "GET", "bucket/b", 0, 100)
    requests = [one, two, three, one, two, three]
    assert taken(Rule(FAULT, times=1), requests) == [True] + [False] * 5
    assert taken(Rule(FAULT, times=1, per="key"), requests) == [True, False, True, False, False, False]
    assert taken(Rule(FAULT, times=1, per="range"), requests) == [True, True, True, False, False, False]


def test_chance_depends_on_the_request_and_the_seed_and_not_on_the_order() -> None:
    requests = [Facts("get", "GET", "bucket/key", start, start + 1) for start in range(2000)]
    rule = Rule(FAULT, probability=0.1)
    forwards = dict(zip(requests, taken(rule, requests), strict=True))
    backwards = dict(zip(requests[::-1], taken(rule, requests[::-1]), strict=True))
    assert forwards == backwards
    assert 140 < sum(forwards.values()) < 260
    assert forwards != dict(zip(requests, taken(rule, requests, seed=1), strict=True))
    repeated = taken(rule, [READ] * 2000)
    assert 140 < sum(repeated) < 260, "repetitions of a request are drawn anew"


def test_the_first_rule_that_takes_a_request_decides() -> None:
    first, second = Fault(status=500), Fault(status=503)
    book = RuleBook([Rule(first, times=1), Rule(second)])
    assert [book.choose(READ), book.choose(READ)] == [first, second]


def test_a_rule_holds_between_its_times() -> None:
    now = [10.0]
    book = RuleBook([Rule(FAULT, from_s=1.0, until_s=2.0)], clock=lambda: now[0])
    found = []
    for now[0] in (10.0, 10.9, 11.0, 11.9, 12.0):
        found.append(book.choose(READ) is not None)
    assert found == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("at", "nbytes", "spot"),
    [("start", 10, 0), ("head", 10, 0), ("first", 10, 1), ("middle", 9, 4), ("last", 10, 9), (3, 10, 3), (11, 10, 10),
     ("first", 0, 0), ("last", 0, 0)],
)  # fmt: skip
def test_places_are_numbers_of_bytes(at: int, nbytes: int, spot: int) -> None:
    assert place(at, nbytes) == spot


def test_chaos_takes_its_share_in_every_way_alike() -> None:
    requests = [Facts("get", "GET", "bucket/key", start, start + 1) for start in range(20_000)]
    rule = chaos(0.3)
    book = RuleBook([rule])
    found = Counter(book.choose(facts) for facts in requests)
    spoilt = 20_000 - found.pop(None)
    assert 5600 < spoilt < 6400
    assert len(found) == 1 + len(rule.others) > 25
    assert min(found.values()) > spoilt / len(found) / 2


@pytest.mark.parametrize("name", EVERY_FAULT)
def test_every_fault_survives_being_sent_to_a_server(name: str) -> None:
    rules = (
        Rule(EVERY_FAULT[name], key="a/*", touches=(3, 4), per="range", times=2),
        chaos(0.5),
        Rule(Fault(raw=b"\xff\x00")),
    )
    site = FaultSite()
    try:
        assert fault_control.answer(site, "PUT", "rules", fault_control.rules_text(rules)) == (200, b"")
        assert site.rules.rules == rules
    finally:
        site.close()


def test_a_server_says_what_it_does_not_understand() -> None:
    site = FaultSite()
    try:
        for path, body in (("rules", b"{"), ("wire", b'{"speed": 1}'), ("rules", json.dumps([{"fault": 1}]).encode())):
            status, text = fault_control.answer(site, "PUT", path, body)
            assert status == 400
            assert text
        assert fault_control.answer(site, "PUT", "nothing", b"")[0] == 400
    finally:
        site.close()
