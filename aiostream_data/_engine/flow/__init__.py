"""Move chunks (sequences of rows) between stages: channels, the base class of stages, and the context of a run.

Input: chunks of rows that a stage sends, and the nodes of the plan.
Output: chunks, delivered in order to the next stage; the sending stage waits while its channel is full. Losses and
    errors arrive after the rows that were sent before them.
"""
