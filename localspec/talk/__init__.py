"""A conversation with an engine, without a front end: what the prompt and the full screen have in common. `Chat` holds
its state; every slash command is a row of `localspec.talk.commands.COMMANDS`."""
