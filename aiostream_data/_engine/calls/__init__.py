"""Run user functions over rows. Each operator sets its concurrency, executor, timeout and output order.

Input: chunks (sequences of rows) and a user function. Output: chunks of results or failures, and the cost of each hop
    (one unit of work on a worker).
"""
