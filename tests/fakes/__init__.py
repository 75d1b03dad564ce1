"""Modules that stand in for what a machine without GPUs does not have."""
