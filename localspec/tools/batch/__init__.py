"""Many prompts from a file, many at a time, an answer a line."""
