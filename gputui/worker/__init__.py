"""In a worker's process: its device, its memory and spilling, how its arrays move."""
