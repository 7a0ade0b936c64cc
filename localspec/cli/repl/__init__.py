"""The line-based chat: `Chat` holds its state and knows no terminal, `Repl` is the loop in front of it, and every slash
command is a row of `localspec.cli.repl.commands.COMMANDS`."""
