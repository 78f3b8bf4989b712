"""Move chunks (sequences of rows) between stages: channels, the base class of stages, and the context of a run.

Input: chunks of rows that a stage sends, and the nodes of the plan.
Output: chunks in order at the next stage; a full channel makes the sending stage wait. Losses and errors arrive after
    the rows that were sent before them.
"""
