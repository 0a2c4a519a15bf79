"""Streams become jobs, processes become nodes, channels become pairs of hosts: facts without judgement."""
