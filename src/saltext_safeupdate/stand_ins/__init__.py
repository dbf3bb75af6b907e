"""What Salt loads in the place of this extension while that cannot be loaded."""
