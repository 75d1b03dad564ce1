"""A face's hold on a cluster: start or find its head, attach, scale, run, stop."""

from gputui.cluster.link import HeadLink, Reply

__all__ = ["HeadLink", "Reply"]
