"""Save and restore the position of a stream, and find rows again by their ids.

Input: row ids, lineages and the states of inputs.
Output: JSON-compatible states; row keys, origins and lineages read from a state.
"""
