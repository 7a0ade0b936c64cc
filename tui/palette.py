"""What ctrl+p finds: actions and commands by their names, and after those by words of their help."""

from __future__ import annotations

from textual.command import Hit, Hits
from textual.content import Content
from textual.system_commands import SystemCommandsProvider

#: Below what any match of a name scores.
_HELP_SCORE = 1e-6


class Palette(SystemCommandsProvider):
    """The app's system commands."""

    async def search(self, query: str) -> Hits:
        """Names as Textual matches them; of the others, those whose help has what was typed."""
        matcher, typed = self.matcher(query), query.lower()
        for name, help_text, callback, _discover in self.app.get_system_commands(self.screen):
            if (score := matcher.match(name)) > 0:
                yield Hit(score, matcher.highlight(name), callback, help=help_text)
            elif typed in help_text.lower():
                yield Hit(_HELP_SCORE, Content(name), callback, help=help_text)
