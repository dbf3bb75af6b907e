"""The generations of the minion: which of its main processes there are, and what each has told."""
