"""What runs on a host: its readings, its workers, its links."""
