"""A transactional system to test with: a real btrfs root, and a stand-in for the tool."""
