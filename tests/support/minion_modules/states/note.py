"""States that write down that they ran, with the result that they are told to have."""

from tests.support.packages import Database


def _note(word, name):
    Database(__opts__["fake_packages"]).note(word, name)


def that(name, result=True, changes=False, **kwargs):
    if __opts__["test"]:
        return {
            "name": name,
            "result": None if changes else True,
            "changes": {name: "would"} if changes else {},
            "comment": f"{name} is asked",
        }
    _note("note", name)
    return {
        "name": name,
        "result": result,
        "changes": {name: "changed"} if changes else {},
        "comment": f"{name} ran",
    }


def mod_watch(name, **kwargs):
    _note("watch", name)
    return {"name": name, "result": True, "changes": {name: "watched"}, "comment": "watched"}


def mod_beacon(name, **kwargs):
    _note("beacon", name)
    return {"name": name, "result": True, "changes": {}, "comment": "beacon"}
