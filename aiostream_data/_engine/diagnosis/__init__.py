"""Diagnose a stuck loader.

Input: a running engine with its stages, executors, memory and processes.
Output: a text report that names the stuck stage, and an alarm after a time limit.
"""
