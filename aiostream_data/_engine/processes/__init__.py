"""Run a part of a plan in worker processes.

Input: a plan, its seeds and states, and requests for positions.
Output: chunks in shared memory, counters, and the state after any row.
"""
