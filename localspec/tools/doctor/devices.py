"""What layers can go to beside the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.hub.sizes import human
from localspec.tools.doctor.build import rebuild
from localspec.tools.doctor.facts import Build
from localspec.tools.doctor.findings import Finding, Level

#: Maker of a GPU → backends that can use it, and the flag that builds the usual one.
_USERS = {
    "NVIDIA": (("CUDA", "Vulkan"), "-DGGML_CUDA=ON"),
    "AMD": (("ROCm", "HIP", "Vulkan"), "-DGGML_HIP=ON"),
}


def check(build: Build) -> Iterator[Finding]:
    """Findings of the group ``devices``; none where llama.cpp cannot be asked."""
    if build.library is None:
        return
    for device in build.library.devices:
        what = f"{device.name}: {device.description}, {human(device.free)} of {human(device.total)} free"
        yield Finding("devices.gpu", Level.OK, what, f"-dev {device.name}")
    for maker in build.gpus:
        backends, flag = _USERS[maker]
        if set(backends).isdisjoint(build.library.backends):
            what = f"there is a driver for {maker} GPUs, but this build of llama.cpp cannot use one"
            yield Finding("devices.unused", Level.WARNING, what, rebuild(build.wanted, flag))
        elif not build.library.devices:
            what = f"there is a driver for {maker} GPUs, but llama.cpp finds no GPU"
            yield Finding("devices.unused", Level.WARNING, what, "look at CUDA_VISIBLE_DEVICES and the driver")
    if not build.library.devices and not build.gpus:
        yield Finding("devices.gpu", Level.OK, "there is only the CPU: all layers run on it")
