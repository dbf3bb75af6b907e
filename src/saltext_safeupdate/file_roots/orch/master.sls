# The master comes first: Salt does not support minions that are newer than their master.
# The other files include this one. A master cannot update itself in an orchestration, because its
# restart would end it: update it by its own minion, wait until it is back, and begin again.
#
# What follows a rollout here waits for its end, and 'target' and 'version' say what it is. So
# 'background' and 'plan', which 'salt-run safeupdate.rollout' takes, are refused.
{%- set version = salt['pillar.get']('safeupdate:rollout:version', '') | string %}
{%- set running = salt['saltutil.runner']('safeupdate.master_version') %}
{#- Two numbers are compared; what packaging puts before them and behind them does not count. #}
{%- set pattern = '^(?:[0-9]+:)?([0-9]+)(?:[.]([0-9]+))?' %}
{%- set wanted = version | regex_search(pattern) %}
{%- set there = running | regex_search(pattern) %}
{%- set settings = salt['pillar.get']('safeupdate:rollout', {}) %}
{%- set refused = ['background', 'plan'] | select('in', settings) | list %}
{%- if refused %}
settings-fit:
  test.fail_without_changes:
    - name: >-
        An orchestration waits for the end of each rollout, and compares its version with that of
        this master, so 'safeupdate:rollout' cannot have {{ refused | join(' or ') }}. Nothing was
        started. Remove it, or run 'salt-run safeupdate.rollout' by itself.
    - failhard: True
{% endif %}
master-is-new-enough:
{%- if not version or (wanted and there and
    wanted | map('int') | list <= there | map('int') | list) %}
  test.succeed_without_changes:
    - name: the master runs {{ running }}
{%- else %}
  test.fail_without_changes:
    - name: >-
        This master runs {{ running }}, and minions would get {{ version | json }}. Nothing was
        started. Update the master first, by the minion of its host, and begin again.
    - failhard: True
{%- endif %}
