import pytest

from saltext_safeupdate.core.packages.repositories import unchecked


@pytest.mark.parametrize(
    ("main", "repository", "default", "said"),
    [
        ("", "", True, False),
        ("", "", False, True),
        ("[main]\ngpgcheck=1\n", "", False, False),
        ("[main]\ngpgcheck = True\n", "gpgcheck = 0\n", False, True),
        ("[main]\ngpgcheck = off\n", "", True, True),
        ("", "gpgcheck=1\n", False, False),
        ("", "gpgcheck=0\npkg_gpgcheck=1\n", False, False),
        ("", "gpgcheck=1\npkg_gpgcheck=0\n", True, True),
        ("", "enabled=0\ngpgcheck=0\n", True, False),
        ("# [main]\n[main]\nother = %x\n", "gpgcheck=no\n", True, True),
    ],
)
def test_whose_signatures_are_not_checked(tmp_path, main, repository, default, said):
    settings = tmp_path / "main.conf"
    settings.write_text(main)
    (tmp_path / "salt.repo").write_text(f"[salt]\nname=Salt\n{repository}")
    (tmp_path / "other.txt").write_text("[other]\ngpgcheck=0\n")
    answer = unchecked(str(settings), str(tmp_path), default=default)
    assert (answer is not None) is said
    if said:
        assert f"repository salt in {tmp_path}/salt.repo" in answer


def test_no_settings_and_no_repositories(tmp_path):
    assert unchecked(str(tmp_path / "none"), str(tmp_path / "none.d"), default=False) is None


def test_what_cannot_be_read_is_not_taken_for_checked(tmp_path):
    (tmp_path / "salt.repo").write_text("gpgcheck=0 before any section\n")
    answer = unchecked(str(tmp_path / "none"), str(tmp_path), default=True)
    assert f"{tmp_path}/salt.repo cannot be read" in answer
