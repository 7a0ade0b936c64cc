"""Tools for people who work on localspec; not part of what is installed."""
