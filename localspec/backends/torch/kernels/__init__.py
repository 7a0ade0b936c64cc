"""Triton kernels of the torch backend, each beside what it must equal, written plainly in torch.

`dispatch.choose` is the one place where either is chosen.
"""
