# NCCL that starts on a Jetson: nixpkgs' own, for one capability, with one line more. Stock NCCL ends where NVML
# does not know of peer-to-peer (https://github.com/NVIDIA/nccl/pull/2153), and nixpkgs refuses it for Orin.
#
# It is a package apart from the toolkit, because it has to be compiled, and a host by itself does without.
{ nccl }:
nccl.overrideAttrs (old: {
  postPatch = (old.postPatch or "") + ''
    cp ${./nccl/tegra.h} src/misc/tegra.h
    substituteInPlace src/misc/nvmlwrap.cc --replace-fail \
      'ncclResult_t ncclNvmlEnsureInitialized() {' \
      '#include "tegra.h"
    ncclResult_t ncclNvmlEnsureInitialized() {'
  '';

  # nixpkgs' reason is that an Orin's GPU has neither NVLink nor PCIe; what speaks here is its network.
  passthru = old.passthru // {
    platformAssertions = [ ];
  };
  meta = old.meta // {
    badPlatforms = [ ];
  };
})
