//! The run directory: its layout, `run.json`, the processes that were recorded in it, and how they ended.
