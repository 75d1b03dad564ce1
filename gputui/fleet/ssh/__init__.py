"""Reaching hosts over SSH: connections, host keys, prompts; the only package with asyncssh."""
