"""What records PyTorch: the automatic recording, the allocator's snapshots and history, tensors and modules.

Private, behind `stormlog.auto`, `.torch_snapshot`, `.tensor_tracker` and other public modules. Must import
nothing here: a program that is recorded pays for each import.
"""
