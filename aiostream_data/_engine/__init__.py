"""Run the plan of a data set, from the time a loader opens until it closes.

Input: a plan (the tree of operators) and its options (:mod:`~aiostream_data._engine.engine_options`).
Output: elements for the consumer, the position and the origin of each element, and counters.
"""
