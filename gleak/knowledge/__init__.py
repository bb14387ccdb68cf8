"""Networks that attackers or evaluators train on public data."""
