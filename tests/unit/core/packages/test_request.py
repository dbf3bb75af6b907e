from saltext_safeupdate.core.packages.request import Action, Request


def test_the_names_of_the_targets():
    request = Request(action=Action.INSTALL, targets=(("a", None), ("b", "1")))
    assert request.names == {"a", "b"}


def test_a_request_without_targets_means_everything_and_names_nothing():
    assert Request(action=Action.UPGRADE).names == frozenset()
