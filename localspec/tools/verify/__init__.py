"""Does speculation keep its promise here? The same text with it and without it, and where not, why."""
