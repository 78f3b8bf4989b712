"""Select the fault for each request by rules, and keep the counters of these rules."""

from __future__ import annotations

import fnmatch
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b

from aiostream_data.testing.faults import Facts, Fault, Rule

_SPAN = float(1 << 64)


class RuleBook:
    """Fault rules in order of precedence. Thread-safe.

    Args:
        rules: Fault rules; the first rule that matches a request determines its fault.
        seed: Seed of the random draws for ``probability`` and ``others``.
        clock: Function that returns the time in seconds; ``from_s`` and ``until_s`` count from the creation of the
            RuleBook.
    """

    def __init__(self, rules: Sequence[Rule] = (), seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = tuple(rules)
        self._seed = seed
        self._clock = clock
        self._began_s = clock()
        self._lock = threading.Lock()
        self._keys = [re.compile(fnmatch.translate(rule.key)).fullmatch for rule in self.rules]
        self._met: list[Counter[object]] = [Counter() for _ in self.rules]
        self._taken: list[Counter[object]] = [Counter() for _ in self.rules]
        self._same: list[Counter[Facts]] = [Counter() for _ in self.rules]

    def choose(self, facts: Facts) -> Fault | None:
        """Return the fault for a request, or None for a correct answer.

        The call also updates the counters of the rules.
        """
        if not self.rules:
            return None
        elapsed_s = self._clock() - self._began_s
        with self._lock:
            for number, rule in enumerate(self.rules):
                if self._meets(number, facts, elapsed_s) and self._takes(number, facts):
                    return self._one_of(number, facts) if rule.others else rule.fault
        return None

    def _meets(self, number: int, facts: Facts, elapsed_s: float) -> bool:
        rule = self.rules[number]
        if rule.kind is not None and rule.kind != facts.kind:
            return False
        if rule.method and rule.method != facts.method:
            return False
        if rule.touches is not None and not (facts.start < rule.touches[1] and rule.touches[0] < facts.stop):
            return False
        if elapsed_s < rule.from_s or (rule.until_s is not None and elapsed_s >= rule.until_s):
            return False
        return rule.key == "*" or self._keys[number](facts.name) is not None

    def _takes(self, number: int, facts: Facts) -> bool:
        rule = self.rules[number]
        group = _group(rule, facts)
        place = self._met[number][group]
        self._met[number][group] += 1
        if place < rule.after or (place - rule.after) % rule.every:
            return False
        if rule.times is not None and self._taken[number][group] >= rule.times:
            return False
        if rule.probability < 1.0 or rule.others:
            self._same[number][facts] += 1
            if draw(self._seed, number, facts, self._same[number][facts]) >= rule.probability:
                return False
        self._taken[number][group] += 1
        return True

    def _one_of(self, number: int, facts: Facts) -> Fault:
        rule = self.rules[number]
        place = draw(~self._seed, number, facts, self._same[number][facts])
        return (rule.fault, *rule.others)[int(place * (1 + len(rule.others)))]


def draw(seed: int, number: int, facts: Facts, attempt: int) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the arguments of this function."""
    text = repr((seed, number, facts.kind, facts.method, facts.name, facts.start, facts.stop, attempt))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / _SPAN


def _group(rule: Rule, facts: Facts) -> object:
    if rule.per == "all":
        return None
    return facts.name if rule.per == "key" else (facts.name, facts.start, facts.stop)
