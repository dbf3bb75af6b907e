"""
Update the minion with Salt itself, and lose nothing
====================================================

.. versionadded:: 0.1.0

Look at and steer the updates of this minion. Updating needs no function of this module:
any state or function that changes the minion's own packages is moved to the end and
followed by a restart as soon as every job is done and delivered. :py:func:`update` does
more: it checks and downloads everything first. Either way the updated minion is watched,
and rolled back where it does not prove healthy.
"""

import salt.defaults.exitcodes

from saltext_safeupdate.admin import check as checks
from saltext_safeupdate.admin import errors, steering, updates
from saltext_safeupdate.admin import jobs as job_actions
from saltext_safeupdate.admin import status as statuses
from saltext_safeupdate.admin import wait as waiting
from saltext_safeupdate.factory import Factory

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def status():
    """
    Return where the newest update of this minion is, and what is installed.

    ``phase`` is ``idle`` where there never was one. ``phase``, ``reason``, ``from`` and
    ``to`` tell of the newest update or deferred restart, ``running`` and ``installed`` of
    the versions now, ``draining`` whether new jobs are held, ``undelivered`` how many
    returns wait for their master.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.status

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return statuses.status(Factory(__opts__))


def history(limit=20):
    """
    Return the newest updates with every phase they went through, newest first.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.history limit=5

    limit
        How many updates. Defaults to ``20``.

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return statuses.history(Factory(__opts__), limit)


def restart(reason="safeupdate.restart"):
    """
    Restart the minion as soon as every job has ended and its return is delivered.

    Returns at once; the result appears in :py:func:`status`. Where a restart is to come
    anyway, this asks for no second one.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.restart

    reason
        A text for the history.

    :raises CommandExecutionError: if an update is under way that has not installed yet.
    """
    with errors.as_salts():
        return steering.restart(Factory(__opts__), str(reason))


def plan(version=None, allow_downgrade=False):
    """
    Return what an update would do, and what speaks against it. Nothing is changed.

    ``changes`` holds the versions before and after, ``jobs`` what it would wait for, ``steps``
    the upgrade steps that would run, ``staged`` whether it needs no network any more, and
    ``findings`` every problem with a ``code``, a ``problem``, a ``fix`` and whether it is
    ``blocking``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.plan 3008.3

    version
        The version, whole or without what packaging adds (``3008.3`` means ``3008.3-1`` too).
        Defaults to the newest on offer.

    allow_downgrade
        Whether an older version than the installed one is meant. Defaults to ``False``.

    :raises CommandExecutionError: if Salt was not installed from packages.
    """
    with errors.as_salts():
        return updates.plan(
            Factory(__opts__), __salt__, version, allow_downgrade=bool(allow_downgrade)
        )


def stage(version=None):
    """
    Download and verify an update, so that it needs no network later. Nothing is installed.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.stage 3008.3

    version
        As for :py:func:`plan`.

    :raises CommandExecutionError: if it cannot be had or is not what it has to be.
    """
    with errors.as_salts():
        return updates.stage(Factory(__opts__), version)


def update(version=None, when="idle", allow_downgrade=False, refresh=True):
    """
    Update the minion: check, download, secure the way back, install, restart and watch.

    Returns at once; the result appears in :py:func:`status`. The same request again is the
    same update. Another one takes its place as long as nothing is installed; after that it is
    refused. The updated minion has to prove healthy, or it is rolled back, and the version is
    kept in quarantine.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.update 3008.3

    version
        As for :py:func:`plan`.

    when
        ``idle``: wait for a moment in which no job runs, however long. ``now``: hold new jobs,
        and wait for the others as long as ``safeupdate:jobs_timeout`` says. Defaults to
        ``idle``.

    allow_downgrade
        Whether it may be an older version than the installed one. Defaults to ``False``.

    refresh
        Whether the index of the packages is refreshed first. Defaults to ``True``.

    :raises CommandExecutionError: if it cannot be, with the reason; nothing is changed then.
    """
    with errors.as_salts():
        return updates.update(
            Factory(__opts__),
            __salt__,
            version,
            when=when,
            allow_downgrade=bool(allow_downgrade),
            refresh=bool(refresh),
        )


def wait(update=None, timeout=3600):
    """
    Wait for the end of an update or a deferred restart, and return what became of it.

    The return code is not ``0`` unless it was ``committed``: so ``salt-call`` and, where
    the master is to wait, ``salt`` end with an exit status that tells. No update waits for
    this job; a master gets its return from the minion that runs in the end.

    CLI Example:

    .. code-block:: bash

        salt-call safeupdate.update 3008.3 && salt-call safeupdate.wait
        salt --timeout=60 'web1' safeupdate.wait timeout=900

    update
        The ID of an update, as :py:func:`update` and :py:func:`history` give it. Defaults to
        the newest, also where that changes meanwhile.

    timeout
        Seconds after which what is so far is returned. Defaults to ``3600``.

    :raises CommandExecutionError: if there is no such update, or if it would wait for this
        very job, such as a state run.
    """
    with errors.as_salts():
        found = waiting.wait(Factory(__opts__), update, timeout)
    if found["phase"] != "committed":
        __context__["retcode"] = salt.defaults.exitcodes.EX_GENERIC
    return found


def rollback(to=None):
    """
    Go back to the previous version, from the packages that were kept. Needs no network.

    It is an update like any other: it waits for jobs, and is watched. The version that is left
    is kept in quarantine, so that no state run installs it again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.rollback

    to
        A version. Defaults to the one that :py:func:`revisions` calls ``previous``. Another one
        is downloaded.

    :raises CommandExecutionError: if there is none, or an update is under way.
    """
    with errors.as_salts():
        return updates.rollback(Factory(__opts__), to)


def revisions():
    """
    Return the versions this minion knows of.

    ``active`` is installed, ``previous`` is what :py:func:`rollback` goes back to, ``staged``
    is downloaded, and ``skipped`` was rolled back, with the reason.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.revisions

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return updates.revisions(Factory(__opts__))


def unquarantine(version):
    """
    Allow a version again that was rolled back on this minion.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.unquarantine 3008.3

    version
        As for :py:func:`plan`.

    :raises CommandExecutionError: if it is not in quarantine.
    """
    with errors.as_salts():
        return updates.unquarantine(Factory(__opts__), version)


def cancel():
    """
    Call off an update or a restart that waits, and let new jobs start again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.cancel

    :raises CommandExecutionError: if nothing waits, or the point of no return has passed.
    """
    with errors.as_salts():
        return steering.cancel(Factory(__opts__))


def drain():
    """
    Tell whether new jobs are held, which jobs run, and which are held.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.drain
    """
    with errors.as_salts():
        return steering.drain(Factory(__opts__))


def jobs():
    """
    List the jobs that run, the ones that are held, and what the ledger keeps of jobs.

    ``running`` and ``held`` are "JID function"; ``undelivered`` are returns that wait for
    their master; ``recorded`` is every job that is not delivered, with its ``state``
    (``held``, ``accepted``, ``running``, ``finished``), ``attempts`` (starts), ``sends``
    (tries to return), ``accepted`` (epoch seconds) and ``master``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.jobs

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return job_actions.listed(Factory(__opts__))


def resume(jid):
    """
    Start an interrupted or held job again now, or send its return again now.

    States of a state run that have finished are not run again.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.resume 20260101120000000000

    jid
        The job ID, as listed by :py:func:`jobs`.

    :raises CommandExecutionError: if it runs, or nothing is kept of it.
    """
    with errors.as_salts():
        return job_actions.resume(Factory(__opts__), jid)


def forget(jid):
    """
    Drop what is kept of a job: it is not run and not returned any more.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.forget 20260101120000000000

    jid
        The job ID, as listed by :py:func:`jobs`.

    :raises CommandExecutionError: if it runs, or nothing is kept of it.
    """
    with errors.as_salts():
        return job_actions.forget(Factory(__opts__), jid)


def accepted(jids):
    """
    Return which of these jobs this minion has accepted, with their states.

    Asked by the master before it publishes a job again. A job that is not in the answer has
    never arrived, or is one of the cheap functions that are not recorded.

    CLI Example:

    .. code-block:: bash

        salt 'web*' safeupdate.accepted '["20260101120000000000"]'

    jids
        List of job IDs.

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return job_actions.accepted(Factory(__opts__), jids)


def check():
    """
    Return what is not set up right, and how to fix it. An empty list: all is well.

    Each entry has a ``code``, a ``problem`` and a ``fix``. An update that failed or was rolled
    back is one of them.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.check
    """
    with errors.as_salts():
        return checks.check(Factory(__opts__))
