# A reactor of the master: when a key is deleted, what was known of its minion goes.
#
#   reactor:
#     - salt/key:
#       - /srv/salt/reactor/safeupdate_forget.sls
#
# Nothing of the event is passed on: every minion can send such an event, with any name in it. The
# runner looks at the keys itself, and drops what is known of minions that have none.
{% if data.get("act") == "delete" %}
what_has_no_key_is_forgotten:
  runner.safeupdate.forget:
    - args:
      - deleted: true
{% endif %}
