"""Every wait in the device stage's own code, taken out: the drills must notice."""

from __future__ import annotations

import ast

import pytest
from device_drill import IN_USE, NO_ROOM, STYLES, drill
from device_mutants import WAITS, Site, device_without, is_backend, modules, seeds_that_catch, sites, source_of

pytestmark = pytest.mark.filterwarnings(NO_ROOM)
WANTED = 3
SEEDS = range(60)


@pytest.mark.parametrize("site", sites(), ids=str)
def test_a_wait_that_is_taken_out_of_the_stage_is_noticed(site: Site) -> None:
    caught = seeds_that_catch(site, SEEDS, WANTED)
    assert len(caught) == WANTED, f"of {len(SEEDS)} seeds these noticed that it is gone: {caught}"


def test_every_wait_of_the_stage_is_among_those() -> None:
    known = {(site.module, site.wait) for site in sites()}
    assert {("ring", "order_after"), ("ring", "mark"), ("host_slots", "join"), ("device_slots", "order_after")} <= known
    for module in modules():
        for node in ast.walk(ast.parse(source_of(module))):
            if isinstance(node, ast.Attribute) and node.attr in WAITS and "order_after" in node.attr:
                assert is_backend(node.value), f"{module}, line {node.lineno}: a wait that is not found by its name"


def test_a_mutant_is_loaded_beside_the_modules_in_use() -> None:
    site = next(site for site in sites() if site.module == "ring" and site.wait == "order_after")
    before = IN_USE.ring.SlotRing
    mutant = device_without(site)
    assert mutant.ring.SlotRing is not before
    assert IN_USE.ring.SlotRing is before
    assert drill(IN_USE, 0, STYLES[0]) == []
