# Set a master up: jobs that minions miss while they restart are published again, and minions
# may ask for its version before they update.
# Restart salt-master once afterwards; it reads its engines when it starts.
/etc/salt/master.d/safeupdate.conf:
  file.serialize:
    - formatter: yaml
    - makedirs: True
    - dataset:
        engines:
          {%- for engine in salt['config.get']('safeupdate:master_engines', []) %}
          - {{ engine | json }}
          {%- endfor %}
          - safeupdate_redeliver:
              window: {{ salt['pillar.get']('safeupdate:redeliver_window', 3600) }}
        # A key of its own: what you allow elsewhere, such as below '.*', stays.
        peer_run:
          '.+':
            - safeupdate.master_version
