"""Known models: where they are and which go together. No weights live here."""
