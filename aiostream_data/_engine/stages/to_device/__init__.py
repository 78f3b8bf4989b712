"""Run ``to_device()``: write batches into slots and copy them to the device.

Input: batches in host memory.
Output: batches in device slots, in order.
"""
