"""The screen: its pure parts, and the app driven by a pilot."""
