"""Diagnose a stuck loader.

Input: a running engine with its stages, executors, memory and worker processes.
Output: a text report that names the stuck stage, and an alarm if the consumer waits too long.
"""
