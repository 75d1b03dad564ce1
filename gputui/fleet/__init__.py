"""Reaching the hosts: SSH, packing the agent, desired against actual, doctor, bootstrap."""
