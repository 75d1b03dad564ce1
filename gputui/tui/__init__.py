"""The screen: a face that shows the head's snapshots and asks the head for changes."""
