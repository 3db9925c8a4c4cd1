//! The bundle that a CUDA out-of-memory error leaves: its files, and what they mean.
