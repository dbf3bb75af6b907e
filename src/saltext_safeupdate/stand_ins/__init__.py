"""Files that Salt loads in place of this extension while that cannot be loaded."""
