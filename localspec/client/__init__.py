"""Engines elsewhere: whatever speaks OpenAI's protocol, behind the interface that engines have here."""
