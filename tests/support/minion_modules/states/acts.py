"""A state of somebody's own that does not know test mode."""


def install(name, **kwargs):
    changes = __salt__["pkg.install"](name, refresh=False)
    return {"name": name, "result": True, "changes": changes, "comment": "done"}
