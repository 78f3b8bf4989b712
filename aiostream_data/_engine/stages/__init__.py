"""The operators: how chunks of rows become other rows.

Input: chunks from inlets, and a node of the plan.
Output: chunks for an outlet, and the operator's part of a state.
"""
