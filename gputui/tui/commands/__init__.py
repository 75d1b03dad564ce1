"""What a person can have done: the registry of commands, and what each does."""
