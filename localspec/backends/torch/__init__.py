"""torch: models of GGUF files as plain tensors."""
