"""Jobs: what functions are to us, the ledger, recovery, and the stop guard."""
