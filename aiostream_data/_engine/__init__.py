"""Run a plan, from opening a loader to closing it.

Input: a plan, and how to run it (:mod:`~aiostream_data._engine.engine_options`).
Output: elements at the consumer, their positions and origins, and counters.
"""
