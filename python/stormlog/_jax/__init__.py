"""The memory of JAX programs: its devices, its profiles by line, its compiled programs, its errors.

Private, behind `stormlog.jax` and `stormlog.auto`. Must import nothing here.
"""
