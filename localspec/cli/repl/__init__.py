"""The line-based chat: `Repl` is the loop between a terminal and `localspec.talk`."""
