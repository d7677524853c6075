"""A machine of four GPUs that is not there: what torch.cuda and NVML would say. Needs no torch."""

import itertools
import os
import types


class PretendedCuda:
    """What torch.cuda says on a machine of four GPUs, under CUDA_VISIBLE_DEVICES as it is now."""

    UUIDS = tuple(f"{number}{'0' * 7}-aaaa-bbbb-cccc-dddddddddddd" for number in range(4))
    works = True

    def visible(self):
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed is None:
            return list(self.UUIDS)
        by_name = {f"GPU-{uuid}": uuid for uuid in self.UUIDS} | dict(
            zip("0123", self.UUIDS, strict=True)
        )
        if listed.startswith("MIG-"):
            return [self.UUIDS[0]]
        return [by_name[name] for name in itertools.takewhile(by_name.get, listed.split(","))]

    def is_available(self):
        return self.works and bool(self.visible())

    def device_count(self):
        return len(self.visible()) if self.works else 0

    def get_device_properties(self, device):
        return types.SimpleNamespace(uuid=self.visible()[device.index])

    def get_device_name(self, index):
        return f"Pretended {self.visible()[index][0]}"

    def set_device(self, device):
        self.current = device.index


class PretendedNvml:
    """NVML on the same machine: it numbers all GPUs, whatever CUDA shows."""

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return "535.104.05"

    def nvmlSystemGetCudaDriverVersion(self):  # noqa: N802
        return 12020

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return PretendedCuda.UUIDS.index(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return 1000 * handle

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return types.SimpleNamespace(free=handle * 2**30, total=24 * 2**30)
