"""The pytest plugin: options, selection, session, fixtures, evidence."""
