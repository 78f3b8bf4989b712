"""Exchange with Arrow libraries by the Arrow C data interface: batches to Arrow arrays, and Arrow arrays to columns.

The package needs no Arrow library. The kernels in ``_native`` read and write the structures of the interface.
"""
