"""What was installed beside Salt, this extension first: found, made ready, brought along."""
