"""The process on every host: it reads the host's GPUs and supervises its workers.

Standard library and pynvml only, so that facts and telemetry come at once and on any host;
distributed and CuPy are imported by its forkserver alone, which forks the workers.
"""
