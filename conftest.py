"""Wire the suite together: options, fixtures and report sinks live in these plugins."""

pytest_plugins = ["checks.fixtures", "checks.plugin", "reports.plugin"]
