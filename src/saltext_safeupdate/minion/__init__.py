"""The only room that knows salt.minion: jobs on their way in, their processes and their returns."""
