# Open a ticket if a rollout has stopped. In the configuration of the master:
# 'safeupdate_tickets: {url: ..., token: ...}'; read the token from a file that only the master reads.
# Any minion can forge an event: look at 'salt-run safeupdate.status' before you act on a ticket.
{%- set tickets = opts['safeupdate_tickets'] %}
ticket:
  runner.http.query:
    - args:
      - url: {{ tickets['url'] | json }}
      - method: POST
      - header_dict: {{ {'Content-Type': 'application/json',
                         'Authorization': 'Bearer ' ~ tickets['token']} | json }}
      - data: {{ {'title': 'Rollout ' ~ data.get('rollout') ~ ' has stopped',
                  'body': data.get('why', '') | string} | json | json }}
