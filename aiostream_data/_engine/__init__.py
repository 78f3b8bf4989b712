"""Run a plan from the opening of a loader to its close.

Input: a plan and its options (:mod:`~aiostream_data._engine.engine_options`).
Output: elements for the consumer, their positions and origins, and counters.
"""
