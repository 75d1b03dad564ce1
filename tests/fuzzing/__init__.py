"""What others can send us, made up: only errors of ours, with words, may come of it."""
