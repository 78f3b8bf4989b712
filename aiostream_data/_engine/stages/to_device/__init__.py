"""Run ``to_device()``: write batches into host memory slots and copy the batches to the device.

Input of ``to_device()``: batches in host memory.
Output of ``to_device()``: batches in device memory slots, in the same order.
"""
