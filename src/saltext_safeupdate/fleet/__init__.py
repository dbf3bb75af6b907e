"""Rollouts: planning and judging. Pure: it imports no Salt, reads no clock, and does nothing."""
