"""Threads that import large libraries take turns here.

Two that import parts of cryptography at once, each from its own end, wait for each other until
Python ends one of them with `_DeadlockError`.
"""

import threading

alone = threading.Lock()
"""To be held while importing off the main thread."""
