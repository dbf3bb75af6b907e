# Mail what a rollout does, by a minion that may send mail and whose Salt has the module 'smtp',
# which 3008 has not. In the configuration of the master:
# 'safeupdate_mail: {minion: ..., to: ..., from: ..., server: ...}'.
# Any minion can forge an event: tell people, let nothing act on it.
{%- set mail = opts['safeupdate_mail'] %}
mail:
  local.smtp.send_msg:
    - tgt: {{ mail['minion'] | json }}
    - args:
      - recipient: {{ mail['to'] | json }}
      - sender: {{ mail['from'] | json }}
      - server: {{ mail['server'] | json }}
      - subject: {{ ('Rollout ' ~ data.get('rollout') ~ ': ' ~ tag.split('/')[-1]) | json }}
      - message: {{ (data.get('why') or 'See salt-run safeupdate.status') | string | json }}
