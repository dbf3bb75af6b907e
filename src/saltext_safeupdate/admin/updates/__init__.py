"""What is asked of updates: by an administrator, a state, or a rollout."""
