"""Sphinx: ``python -m sphinx -W -b html docs docs/_build``."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "src")]

import make_changelog  # noqa: E402
import make_ref  # noqa: E402

import saltext_safeupdate  # noqa: E402

project = "saltext-safeupdate"
author = "saltext-safeupdate developers"
version = release = saltext_safeupdate.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
# The pages are built without Salt: nothing of it is needed to read a docstring.
autodoc_mock_imports = ["salt"]
autodoc_typehints = "none"
html_theme = "furo"
html_title = project


def setup(app):
    app.connect("builder-inited", lambda app: make_ref.write(DOCS / "ref"))
    app.connect("builder-inited", lambda app: make_changelog.write(DOCS))
