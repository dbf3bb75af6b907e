"""A state run on a minion whose locks cannot be used."""


def test_states_run_and_the_own_packages_stay_as_they_are(minion):
    (minion.path / "locks").write_text("not a directory")
    ret = minion.apply(
        {
            "other": {"pkg.latest": [{"name": "vim"}]},
            "own": {"pkg.latest": [{"name": "salt-minion"}]},
            "last": {"test.nop": []},
        }
    )
    assert [ret[name]["result"] for name in ("other", "last")] == [True, True]
    assert ret["own"]["result"] is False
    assert "began without a share of the jobs lock" in ret["own"]["comment"]
    assert minion.journal() == [("install", "vim")]
    assert minion.record() is None
