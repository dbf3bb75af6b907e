# Set the master of this host up: jobs that minions miss while they restart are published again,
# and minions may ask for its version before they update. What the master has stays.
# Restart salt-master once afterwards; it reads its engines when it starts.
safeupdate-master:
  safeupdate.master_enabled:
    - window: {{ salt['pillar.get']('safeupdate:redeliver_window', 300) }}
