"""What guesses best for a target on this machine: a race within a minute, and what later runs learn of it."""
