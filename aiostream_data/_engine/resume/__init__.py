"""Save and restore the position of a stream, and find rows again by their ids.

Input: row ids, lineages (ids of source rows) and the saved states of inputs.
Output: JSON-compatible states, and the row keys, origins and lineages that are read from a state.
"""
