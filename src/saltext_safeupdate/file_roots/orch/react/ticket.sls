# Open a ticket if a rollout has stopped. In the configuration of the master:
# 'safeupdate_tickets: {url: ..., headers: /etc/salt/tickets.headers}'. That file, which only the
# master reads, has the lines 'Content-Type: application/json' and 'Authorization: Bearer ...': the
# arguments of a reaction are in events and in the job cache, so no secret may be among them.
# Any minion can forge an event: look at 'salt-run safeupdate.status' before you act on a ticket.
{%- set tickets = opts['safeupdate_tickets'] %}
ticket:
  runner.http.query:
    - args:
      - url: {{ tickets['url'] | json }}
      - method: POST
      - header_file: {{ tickets['headers'] | json }}
      - data: {{ {'title': 'Rollout ' ~ data.get('rollout') ~ ' has stopped',
                  'body': data.get('why', '') | string} | json | json }}
