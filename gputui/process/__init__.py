"""Child processes, and what the kernel says of them: starting, watching, ending; /proc."""

import sys

IS_LINUX = sys.platform != "darwin"
"""Whether there is /proc; else this is a frontend's machine, on which no cluster runs."""
