"""Stand-ins for the outside world, kept as small as the seam allows."""

from __future__ import annotations

from dataclasses import replace

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host.command import Result


class FakeRunner:
    """Answer from a script of ``{argv: Result | (returncode, stdout, stderr) | Exception}``.

    An unscripted command is a KeyError; ``calls`` lists what was called.
    """

    def __init__(self, answers=None):
        self.answers = dict(answers or {})
        self.calls = []

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        argv = tuple(argv)
        self.calls.append(argv)
        answer = self.answers[argv]
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Result):
            code, stdout, stderr = answer
            answer = Result(argv=argv, returncode=code, stdout=stdout, stderr=stderr)
        if keep:
            lines = answer.stdout.splitlines(keepends=True)
            answer = replace(answer, stdout="".join(filter(keep, lines)))
        if ok is not None and answer.returncode not in ok:
            raise CommandError(
                argv,
                f"exit status {answer.returncode}",
                stdout=answer.stdout,
                stderr=answer.stderr,
                returncode=answer.returncode,
            )
        return answer
