//! Diagnose bundles: what is collected for a bug report, and how one is read.
