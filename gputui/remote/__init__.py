"""A cluster whose head runs on another machine: reached from here over SSH, or started there.

Only the command line and `gputui.connect` come here, and only for `user@login:NAME`: frontends know
of it that `HeadConnection.open` takes what has a `reach`.
"""
