"""The sessions of the Salt extensions' tooling; ``./dev`` does the work."""

import pathlib

import nox

nox.options.sessions = ["lint", "docs", "tests"]
REPO = pathlib.Path(__file__).parent
DOCS = ("-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


def _dev(session, *arguments):
    session.run(str(REPO / "dev"), *arguments, *session.posargs, external=True)


@nox.session(python=False)
def tests(session):
    """Every test that this machine can run."""
    _dev(session, "test")


@nox.session(python=False)
def lint(session):
    """Formatting, style and types."""
    _dev(session, "lint")


@nox.session
def docs(session):
    """Build the documentation; a warning is an error."""
    session.install("sphinx", "myst-parser", "furo")
    session.run("python", "-m", "sphinx", *DOCS)


@nox.session(name="docs-dev")
def docs_dev(session):
    """Build the documentation again whenever a page changes, and show it."""
    session.install("sphinx", "myst-parser", "furo", "sphinx-autobuild")
    session.run("sphinx-autobuild", "--watch", "src", *DOCS[2:])
