from aiostream_data._native.ordering_py import distinct as distinct
from aiostream_data._native.ordering_py import first_breaks as first_breaks
from aiostream_data._native.ordering_py import ids_of_runs as ids_of_runs
from aiostream_data._native.ordering_py import interleave_rows as interleave_rows
from aiostream_data._native.ordering_py import renumbered as renumbered
