"""Reaching the hosts: SSH, packing the agent, wanted against running, doctor, bootstrap."""
