"""Tools over an engine: measuring and checking. They know each other not at all, and front ends neither."""
