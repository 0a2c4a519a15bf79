"""Wire the suite together: options, fixtures and report sinks live in these plugins."""

pytest_plugins = ["checks.framework.fixtures", "checks.framework.plugin", "reports.plugin"]
