"""The one table of options, a module a group. Names and spellings are llama.cpp's; where a default differs, the help
says so."""
