"""Runtime implementations of the operators: stages (with a coroutine) and steps (without a coroutine).

Input of a stage: a plan node, and chunks of rows from inlets.
Output of a stage: chunks of rows for an outlet, and the operator's part of a saved state.
"""
