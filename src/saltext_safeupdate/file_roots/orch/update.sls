# Update a fleet by pillar: 'safeupdate:rollout' has what 'salt-run safeupdate.rollout' takes.
#
#   salt-run state.orchestrate orch.update pillar='{safeupdate: {rollout: {target: "*",
#     version: "3008.3"}}}'
{%- set wanted = salt['pillar.get']('safeupdate:rollout', {}) %}
include:
  - orch.master

rollout:
  salt.runner:
    - name: safeupdate.rollout
{%- for setting, value in wanted.items() %}
    - {{ setting }}: {{ value | json }}
{%- endfor %}
    - require:
      - test: master-is-new-enough
