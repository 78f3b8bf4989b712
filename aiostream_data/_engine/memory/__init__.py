"""Keep all data of a loader within its memory limit.

Input: sizes in bytes, which are reserved before data is requested and counted when data is created.
Output: reservations, leases that release their bytes when the last reference is deleted, and reusable blocks.
"""
