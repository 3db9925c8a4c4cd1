"""The pytest plugin: memory limits of tests. Private; pytest loads it through its entry point."""
