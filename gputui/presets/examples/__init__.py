"""Presets to read and to copy, each a file of less than 60 lines.

`kmeans.py` is rounds of tasks on blocks that stay on the workers, `cholesky.py` tasks that depend
on others, `conjugate_gradients.py` a Dask array that is computed on step by step. Copy one and run
it: `gputui --run ./kmeans.py:PRESET`.
"""
