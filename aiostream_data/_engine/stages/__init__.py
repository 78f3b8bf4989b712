"""Stages and steps of operators.

Input: chunks from inlets, and a node of the plan.
Output: chunks for an outlet, and the operator's part of a state.
"""
