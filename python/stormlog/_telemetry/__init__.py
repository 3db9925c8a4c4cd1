"""Event lists that stay native until they are read. Private, behind `stormlog.telemetry`."""
