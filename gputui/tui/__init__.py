"""The screen: a frontend that shows the head's snapshots and asks the head for changes."""
