"""What runs on every host: telemetry of its GPUs, and the care of its workers.

Standard library and pynvml only, so that facts and telemetry come at once and on any host;
distributed and CuPy are imported by its forkserver alone, which forks the workers.
"""
