"""Run a part of a plan in worker processes.

Input: a plan, its seeds and saved states, and requests for positions.
Output: chunks in shared memory, counters, and the saved state after any row.
"""
