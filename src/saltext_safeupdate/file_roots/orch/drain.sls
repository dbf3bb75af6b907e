# Take hosts out of service around their update: one part after the other.
#
# safeupdate:
#   rollout: {version: '3008.3', canaries: 0, soak: 0}
#   parts: {left: 'web1,web2', right: 'web3,web4'}     a list of minions each, in this order
#   balancer: lb1                                      the minion that runs these functions, with
#   out: haproxy.disable_server                        the name of the part as their argument
#   back: haproxy.enable_server
#
# A part goes back into service even if its update has failed: a rolled back minion is as good as
# before. It also does if the balancer has not said that the part is out: it may have heard that
# all the same. The next part begins only if all went well. A part whose minions have the version already
# leaves its service for a moment, too: 'salt-run safeupdate.plan' tells before whether that is so.
{%- set wanted = salt['pillar.get']('safeupdate:rollout', {}) %}
{%- set parts = salt['pillar.get']('safeupdate:parts', {}) %}
{%- set balancer = salt['pillar.get']('safeupdate:balancer', '') %}
{%- set before = ['test: master-is-new-enough'] %}
include:
  - orch.master
{% if not parts is mapping or not parts %}
parts-are-named:
  test.fail_without_changes:
    - name: >-
        'safeupdate:parts' has to name the parts, each with a list of its minions. Nothing was
        started.
    - failhard: True
{%- set parts = {} %}
{% endif %}
{% for part, minions in parts.items() %}
out-{{ part }}:
  salt.function:
    - name: {{ salt['pillar.get']('safeupdate:out', '') | json }}
    - tgt: {{ balancer | json }}
    - arg: [{{ part | json }}]
    - require:
{%- for each in before %}
      - {{ each }}
{%- endfor %}

rollout-{{ part }}:
  salt.runner:
    - name: safeupdate.rollout
{%- for setting, value in wanted.items() if setting not in ('target', 'tgt_type', 'groups') %}
    - {{ setting }}: {{ value | json }}
{%- endfor %}
    - target: {{ minions | json }}
    - tgt_type: list
    - require:
      - salt: out-{{ part }}

back-{{ part }}:
  salt.function:
    - name: {{ salt['pillar.get']('safeupdate:back', '') | json }}
    - tgt: {{ balancer | json }}
    - arg: [{{ part | json }}]
    - require:
      - salt: out-{{ part }}

undo-{{ part }}:
  salt.function:
    - name: {{ salt['pillar.get']('safeupdate:back', '') | json }}
    - tgt: {{ balancer | json }}
    - arg: [{{ part | json }}]
    - onfail:
      - salt: out-{{ part }}
    - require:
{%- for each in before %}
      - {{ each }}
{%- endfor %}
{%- do before.clear() %}
{%- do before.extend(['salt: rollout-' ~ part, 'salt: back-' ~ part]) %}
{% endfor %}
