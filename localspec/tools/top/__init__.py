"""Watching a running server from outside: ours or llama.cpp's, by what ``/slots``, ``/metrics`` and ``/props`` tell."""
