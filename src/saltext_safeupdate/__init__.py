"""Update the Salt minion with Salt itself, and lose nothing."""

__version__ = "0.1.0"
