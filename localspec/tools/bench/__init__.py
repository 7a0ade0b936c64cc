"""Does guessing pay? Plain and speculative decoding side by side, in one run."""
