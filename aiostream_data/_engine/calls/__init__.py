"""Run user functions over rows, with the concurrency, executor, timeout and output order of their node.

Input: chunks and a user function. Output: chunks of results or failures, and the cost of each hop.
"""
