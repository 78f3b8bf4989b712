"""Move chunks between stages: channels, the contract of a stage, and the context of a run.

Input: chunks that a stage sends, and the plan's nodes.
Output: chunks in order at the next stage, with back-pressure, losses and errors behind the rows sent before.
"""
