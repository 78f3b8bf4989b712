from __future__ import annotations

from fuzz_example import run_mutations


def test_both_parsers_agree_on_mutated_examples() -> None:
    runs = 1500
    clean = run_mutations(runs, seed=35)
    assert 0 < clean < runs
