"""Describe the position of a stream, and find rows again by name.

Input: row ids, lineages and the states of inputs.
Output: plain JSON for a state; row keys, origins and lineages from it.
"""
