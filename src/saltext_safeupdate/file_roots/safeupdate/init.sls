# Set a minion up for safe updates of itself.
safeupdate:
  safeupdate.enabled: []
