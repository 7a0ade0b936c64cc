"""Making a drafter for a target, from what the target itself writes."""
