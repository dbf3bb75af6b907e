"""Whether a minion's configuration names an engine, as its own Salt reads it."""

import sys

import pytest
import salt.config

from saltext_safeupdate.core.extensions import interpreter
from saltext_safeupdate.core.host.command import run


@pytest.mark.usefixtures("real_process")
@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("engines: [other, ours: {}]", False),
        ("engines: {other: {}}", True),
        ("engines: [other: {engine_module: ours}]", False),
        ("engines: [{other: {}, ours: {}}]", True),
    ],
)
def test_whether_a_minion_has_an_engine(tmp_path, text, lacks):
    config = tmp_path / "minion"
    config.write_text("id: minion\n")
    (tmp_path / "minion.d").mkdir()
    (tmp_path / "minion.d" / "one.conf").write_text(text)
    assert "other" in str(salt.config.minion_config(str(config))["engines"])
    assert interpreter.lacks_engine(sys.executable, run, str(config), "ours") is lacks
