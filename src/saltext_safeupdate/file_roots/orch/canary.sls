# Canaries in a rollout of their own, a check by you, then all others.
#
# safeupdate:
#   rollout: {target: '*', version: '3008.3'}     as for orch.update: all minions
#   canaries: 'web1,db1'                          a list: these go first
#   verify: {fun: http.query, arg: [http://localhost/health], kwarg: {}}    optional
{%- set wanted = salt['pillar.get']('safeupdate:rollout', {}) %}
{%- set canaries = salt['pillar.get']('safeupdate:canaries', '') %}
{%- set verify = salt['pillar.get']('safeupdate:verify', {}) %}
include:
  - orch.master

canaries:
  salt.runner:
    - name: safeupdate.rollout
{%- for setting, value in wanted.items() if setting not in ('target', 'tgt_type', 'groups') %}
    - {{ setting }}: {{ value | json }}
{%- endfor %}
    - target: {{ canaries | json }}
    - tgt_type: list
    - require:
      - test: master-is-new-enough

verify:
  salt.function:
    - name: {{ verify.get('fun', 'test.ping') | json }}
    - tgt: {{ canaries | json }}
    - tgt_type: list
    - arg: {{ verify.get('arg', []) | json }}
    - kwarg: {{ verify.get('kwarg', {}) | json }}
    - require:
      - salt: canaries

rest:
  salt.runner:
    - name: safeupdate.rollout
{%- for setting, value in wanted.items() %}
    - {{ setting }}: {{ value | json }}
{%- endfor %}
    - require:
      - salt: verify
