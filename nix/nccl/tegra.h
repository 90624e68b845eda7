// NVML as NCCL expects it, on a Jetson. Included once in NCCL's src/misc/nvmlwrap.cc, before its first function;
// there pfn_NAME is NCCL's pointer to NVML's function NAME.
//
// NCCL asks for the peer-to-peer status of every pair of GPUs, even of a GPU with itself, and takes any failure for the
// end of NVML. A Jetson's NVML answers that it is not supported, and that is an answer: none. Its integrated GPU is on
// no PCI bus, so that NVML may not find it by a bus id; where it is the only GPU, it is the one.
namespace {
nvmlReturn_t tegraP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index,
                            nvmlGpuP2PStatus_t* status) {
  nvmlReturn_t said = pfn_nvmlDeviceGetP2PStatus(one, other, index, status);
  if (said != NVML_ERROR_NOT_SUPPORTED) return said;
  *status = NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

nvmlReturn_t tegraHandleByPciBusId(const char* busId, nvmlDevice_t* device) {
  nvmlReturn_t said = pfn_nvmlDeviceGetHandleByPciBusId(busId, device);
  if (said == NVML_SUCCESS || ncclNvmlDeviceCount != 1) return said;
  *device = ncclNvmlDevices[0].handle;
  return NVML_SUCCESS;
}
} // namespace

// With arguments, so that they stand for calls, and not for the pointers where NCCL fills them in.
#define pfn_nvmlDeviceGetP2PStatus(...) tegraP2PStatus(__VA_ARGS__)
#define pfn_nvmlDeviceGetHandleByPciBusId(...) tegraHandleByPciBusId(__VA_ARGS__)
