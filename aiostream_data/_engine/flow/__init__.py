"""Move chunks between stages: channels, the base class of stages, and the context of a run.

Input: chunks that a stage sends, and the plan's nodes.
Output: chunks in order at the next stage, with back-pressure. Losses and errors arrive after the rows sent before them.
"""
