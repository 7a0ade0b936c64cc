"""The engine behind HTTP: OpenAI's protocol, llama.cpp's endpoints, metrics, and a page to chat on."""
