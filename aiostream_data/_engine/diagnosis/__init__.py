"""Explain a loader that is stuck.

Input: a running engine: its stages, executors, memory and processes.
Output: one text that names the stage to blame, and an alarm after a time limit.
"""
