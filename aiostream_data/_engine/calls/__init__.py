"""Run user functions over rows: how many at once, where, and in which order results leave.

Input: chunks, a user function, and a node's concurrency, executor and time-out.
Output: chunks of results or failures, with the cost of each hop.
"""
