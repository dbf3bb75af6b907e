"""
Stand-in of saltext-safeupdate, written by the state safeupdate.enabled: an executor.

Salt loads it only while the extension itself cannot be loaded. Every job runs then, as with
plain Salt.
"""

import importlib
import logging
import os
import sys
import time

from salt.exceptions import CommandExecutionError

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate"

_INSTALLED = "saltext_safeupdate.executors.safeupdate"
_CURRENT = "saltext_safeupdate.core.jobs.current"
# Bytes of such a file from which on it tells no time, as for the extension.
_MOST = 256 * 1024


def __virtual__():
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """Let the extension do what it does before a job, if it is there again."""
    try:
        installed = importlib.import_module(_INSTALLED)
    except Exception as err:
        # The job runs in any case.
        log.error(
            "Job %s (%s) runs as with plain Salt: saltext-safeupdate cannot be loaded (%r). "
            "Install it again for the minion's Python; nothing else has to be done.",
            data.get("jid", ""),
            data.get("fun"),
            err,
        )
        _leave_word(opts, data)
        if data.get("__safeupdate_goes_on__"):
            raise CommandExecutionError(
                "This run should have continued after a restart, but saltext-safeupdate is gone. "
                "Its earlier states have run; the others have not. Check what is missing, then "
                "publish the rest again."
            ) from err
        listed = data.get("module_executors") or opts.get("module_executors") or []
        if isinstance(listed, str):
            # As 'salt-call --module-executors' has it.
            listed = [name.strip(" '\"") for name in listed.strip("[] ").split(",")]
        if list(listed)[-1:] == [__virtualname__]:
            # No other executor would run it.
            return func(*args, **kwargs)
        return None
    return installed.execute(opts, data, func, args, kwargs)


def _leave_word(opts, data):
    """
    Write down for the extension that this job ran, so that it does not run again.

    A minion that has the extension in its memory records its jobs, and salt-call's are not.
    """
    current = sys.modules.get(_CURRENT)
    job = current.get() if current is not None else None
    if "ret" not in data or (job is not None and job.key):
        return
    key = str(data.get("jid", ""))
    resource = data.get("resource_target")
    if isinstance(resource, dict):
        key = f"{key}/{resource.get('type')}:{resource.get('id')}"
    # One that comes from the queue of the jobs has its whole JID there.
    kept = data.get("__safeupdate_kept__")
    if isinstance(kept, str):
        key = kept + key[len(str(data.get("jid", ""))) :]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        lines = f"\t{boot} {time.clock_gettime(time.CLOCK_BOOTTIME)}\n"
        path = os.path.join(opts["cachedir"], "safeupdate-unrecorded")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size >= _MOST:
                lines = ""
            if kept:
                lines = f"{key}\t\n{lines}"
            if os.write(fd, lines.encode()) < len(lines):
                os.ftruncate(fd, max(_MOST, os.fstat(fd).st_size))
            # A power cut would have the job run twice.
            os.fsync(fd)
            if not size:
                _sync_directory(opts["cachedir"])
        finally:
            os.close(fd)
    except OSError as err:
        log.error(
            "It cannot be written down that job %s runs (%s): saltext-safeupdate may run it again.",
            key,
            err,
        )


def _sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
