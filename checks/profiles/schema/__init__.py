"""The schema of a profile: one module for each of its sections; strict records, no logic."""
