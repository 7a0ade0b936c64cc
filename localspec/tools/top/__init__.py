"""A look at a server while it works: read, turned into rates, and told in words. Nothing here draws."""
