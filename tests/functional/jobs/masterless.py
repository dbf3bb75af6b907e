"""A real minion without a master."""

from saltext_safeupdate.minion import queues
from tests.support.real_minion import SHELL, RealMinion, humble, startup


class Masterless(RealMinion):
    """
    Its startup states, its schedule and its queued jobs each write a word into a file.

    With *may_write* False, it may not write where others own the directory, as if it did not run
    as root.
    """

    def __init__(self, path, *, may_write=True, **options):
        super().__init__(
            path,
            **{
                "master_type": "disable",
                "file_client": "local",
                "file_roots": {"base": [str(path / "srv")]},
                **options,
            },
        )
        if not may_write:
            self.prepare = humble
        startup(self.path / "srv")

    def queue(self, jid, word):
        """Put a job into its queue that writes a word."""
        job = {"jid": jid, "fun": "cmd.run", "arg": [self.noting(word), *SHELL], "ret": ""}
        queues.put(self.opts, job)


def scheduled(minion_path):
    """Return a schedule that writes a word every second."""
    word = f"echo scheduled >> {minion_path / 'notes-etc'}"
    job = {"function": "cmd.run", "args": [word], "kwargs": {"python_shell": True}, "seconds": 1}
    return {"note": {**job, "return_job": False}}
