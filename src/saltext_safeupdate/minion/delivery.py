"""Messages of the engine to masters, and jobs that it lets the minion start."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import salt.defaults.exitcodes
import salt.payload
import salt.utils.event
import salt.version

from ..core.errors import DamagedError
from ..core.generations.generation import Probe
from ..core.host.reach import Address, reaches_any
from ..core.jobs import functions
from ..core.jobs.delivering import Answer
from ..core.jobs.ledger import Job
from ..core.record.store import PhaseRow
from ..core.record.update import Update
from . import answers, kept_returns, publication, queues
from .masters import Masters, addresses
from .returners import Returners

# Seconds to wait for the master's answer to one return; it is tried again later. A slow master gets
# it twice and stores it once.
_ACK_TIMEOUT = 10

# The last part of the tag of an event that is not a phase.
WAITED = "restart_waited"
# Options that set the local address of connections.
_BOUND = ("source_address", "source_interface_name", "source_ret_port")


class Delivery:
    """
    Sends through the main process of the minion, which has the connection.

    *reaches* tells whether this host reaches one of some addresses.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        functions: Mapping[str, Any],
        masters: Masters,
        returners: Returners | None = None,
        *,
        reaches: Callable[[Sequence[Address]], bool] = reaches_any,
    ) -> None:
        self._opts = opts
        self._masters = masters
        self._reaches = reaches
        # Loaded now, so that nothing has to be loaded while the tree is replaced. A list of modules
        # may leave it out.
        self._event_send = functions.get("event.send") or self._send_event
        self._returners = returners or Returners(opts, dict)
        self.salt_version = str(salt.version.__version__)

    def publish(self, row: PhaseRow, update: Update | None) -> bool:
        """Report a phase to the master; tell whether that worked."""
        data = {
            "update": row.id,
            "phase": row.phase,
            "reason": row.reason,
            "seq": row.seq,
            "at": row.at,
        }
        if update is not None:
            data |= {
                "kind": update.kind,
                "from": update.versions_from,
                "to": update.versions_to,
            }
        if not self._opts.get("master_uri") and self._opts.get("file_client") == "local":
            self._refresh_grains(row, update)
            return True
        if not self._may_arrive():
            return False
        tag = f"salt/minion/{self._opts['id']}/safeupdate/{row.phase}"
        sent = bool(self._event_send(tag, data))
        if sent:
            self._refresh_grains(row, update)
        return sent

    def tell_of_wait(self, why: str) -> bool:
        """Report to the master that a restart has waited for jobs; tell whether that worked."""
        if not self._opts.get("master_uri") and self._opts.get("file_client") == "local":
            return True
        tag = f"salt/minion/{self._opts['id']}/safeupdate/{WAITED}"
        return self._may_arrive() and bool(self._event_send(tag, {"reason": why}))

    def _may_arrive(self) -> bool:
        """Tell whether an event may reach a master: the main process drops events that do not."""
        if any(self._opts.get(name) for name in _BOUND):
            # A firewall may let through only connections from there.
            return True
        known = addresses(self._opts)
        # With several masters these belong to one part of the minion; other parts send it, too.
        others = set(self._masters.working()).difference(each.host for each in known)
        return not known or bool(others) or self._reaches(known)

    def _send_event(self, tag: str, data: Mapping[str, Any]) -> bool:
        """Let the main process send an event to its masters."""
        with salt.utils.event.get_event("minion", opts=self._opts, listen=False) as bus:
            event = {"data": data, "tag": tag, "events": None, "pretag": None}
            return bool(bus.fire_event(event, "fire_master", timeout=_ACK_TIMEOUT))

    def _refresh_grains(self, row: PhaseRow, update: Update | None) -> None:
        """
        Make the minion compute its grains again if ours has changed.

        This is the last step of an update, or a snapshot waits for the boot: the code that the main
        process loads for it does not change meanwhile.
        """
        settled = update is not None and (update.phase.final or update.awaits_boot)
        if settled and update is not None and update.phase.value == row.phase:
            with salt.utils.event.get_event("minion", opts=self._opts, listen=False) as bus:
                bus.fire_event({"force_refresh": True}, "grains_refresh", timeout=_ACK_TIMEOUT)

    def send(self, job: Job) -> Answer:
        """Send an undelivered return; return the master's answer. TAKEN with 'pub_ret: False'."""
        if not self._opts.get("pub_ret", True):
            return Answer.TAKEN
        master = self._masters.in_charge_of(job.master, f"the return of job {job.jid}")
        if master is None:
            return Answer.NONE
        load = _read(job.payload)
        request = str(uuid.uuid4())
        with salt.utils.event.get_event("minion", opts=self._opts, listen=True) as bus:
            bus.fire_event(
                load, f"__master_req_channel_payload/{request}/{master}", timeout=_ACK_TIMEOUT
            )
            answer = bus.get_event(tag=f"__master_req_channel_return/{request}", wait=_ACK_TIMEOUT)
        if not answer or answer.get("error"):
            return Answer.NONE
        return Answer.FAILED if answers.is_failure(answer.get("ret")) else Answer.TAKEN

    @staticmethod
    def call(job: Job) -> dict[str, Any]:
        """Return the job as it was published."""
        found = _read(job.call)
        if str(found.get("jid")) != job.jid:
            raise DamagedError("The stored publication belongs to another job.")
        return found

    def run(self, job: Job) -> None:
        """Put a job where the minion starts it under its JID. Raise OSError."""
        call = self.call(job)
        if job.awaits or (job.attempts and job.has_begun and functions.is_resumable(job.fun)):
            # Other jobs may have begun first.
            call = {**publication.behind_others(call), publication.GOES_ON: True}
        # If no master is in charge of it now, it waits where the part of its master will look.
        master = self._masters.in_charge_of(job.master, f"job {job.jid}") or job.master
        queues.put(self._queue_opts(master), call)

    def probe(self, wanted: Probe) -> bool:
        """
        Put the probe of the supervisor where the minion starts it; tell whether that is possible.

        Raise OSError.
        """
        masters = self._masters.working()
        if not masters:
            return False
        job = {
            "jid": wanted.jid,
            "fun": wanted.fun,
            "arg": list(wanted.arg),
            "tgt": self._opts["id"],
            "tgt_type": "glob",
            "ret": "",
            "user": publication.ASKED_BY,
        }
        # The former minion handles the queue until this one has shown that it works.
        apart = self._masters.follows()
        queues.put(self._queue_opts(masters[0]), job, first=True, apart=apart)
        return True

    def queued(self) -> set[str]:
        """Return the JIDs of the jobs in the queues."""
        return queues.jids(self._opts)

    def kept(self) -> set[str]:
        """Return the keys of jobs whose return is stored outside of the ledger."""
        return kept_returns.keys(self._opts)

    def describe(self, job: Job, text: str) -> bytes:
        """Return the failed return of a job, with *text* as its content."""
        call = _known_of(job)
        load = {
            "cmd": "_return",
            "id": self._opts["id"],
            "jid": job.jid,
            "fun": call.get("fun", job.fun),
            "fun_args": call.get("arg", []),
            # A state run without results returns a list of errors.
            "return": [text] if job.fun.startswith("state.") else text,
            "retcode": salt.defaults.exitcodes.EX_GENERIC,
            "success": False,
            "out": "highstate" if job.fun.startswith("state.") else "nested",
        }
        load |= {key: call[key] for key in ("user", "master_id", "metadata") if key in call}
        resource = call.get("resource_target")
        if isinstance(resource, dict):
            load["resource_id"] = resource.get("id")
        payload: bytes = salt.payload.dumps(load)
        return payload

    def hand_over(self, job: Job, payload: bytes) -> None:
        """Give a return made by :meth:`describe` to the returners of the job."""
        self._returners.hand_over(_known_of(job), salt.payload.loads(payload))

    def _queue_opts(self, master: str) -> dict[str, Any]:
        """Return the opts that name the queues of the minion's part for this master."""
        # The opts of this Salt are slow to copy.
        return {"cachedir": self._opts["cachedir"], "master": master}


def _read(stored: object) -> dict[str, Any]:
    """Return the stored data of a job. Raise DamagedError."""
    if not isinstance(stored, bytes):
        raise DamagedError("The ledger has no readable data of it.")
    try:
        found = salt.payload.loads(stored)
    except Exception as err:
        # The serializer raises errors of many kinds for bytes that it did not write.
        raise DamagedError(f"The stored data of it cannot be read: {err}") from err
    if not isinstance(found, dict):
        raise DamagedError("The stored data of it is not a mapping.")
    return found


def _known_of(job: Job) -> dict[str, Any]:
    """Return the job as it was published; empty if that is not known any more."""
    try:
        return _read(job.call) if job.call else {}
    except DamagedError:
        return {}
