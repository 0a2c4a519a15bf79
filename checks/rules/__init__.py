"""The pure judgements behind the checks: facts in, findings out; nothing here talks to a cluster."""
