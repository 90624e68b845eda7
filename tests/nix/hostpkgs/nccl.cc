// As much of NCCL's src/misc/nvmlwrap.cc (v2.25.1-1 to v2.30.7-1, https://github.com/NVIDIA/nccl) as nix/nccl/tegra.h
// touches, in our own words: how the pointers to NVML are named, filled and called. What else NCCL is, it is not.
#include <dlfcn.h>

enum ncclResult_t { ncclSuccess = 0, ncclSystemError = 2 };
enum nvmlReturn_t { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3 };
enum nvmlGpuP2PCapsIndex_t { NVML_P2P_CAPS_INDEX_READ = 0, NVML_P2P_CAPS_INDEX_WRITE = 1 };
enum nvmlGpuP2PStatus_t { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };
typedef struct nvmlDevice_st* nvmlDevice_t;

int ncclNvmlDeviceCount = 0;
struct ncclNvmlDeviceInfo { nvmlDevice_t handle; } ncclNvmlDevices[32];
struct ncclNvmlDevicePairInfo { nvmlGpuP2PStatus_t p2pStatusRead, p2pStatusWrite; } ncclNvmlDevicePairs[32][32];

namespace {
nvmlReturn_t (*pfn_nvmlDeviceGetCount)(unsigned*) = nullptr;
nvmlReturn_t (*pfn_nvmlDeviceGetHandleByIndex)(unsigned, nvmlDevice_t*) = nullptr;
nvmlReturn_t (*pfn_nvmlDeviceGetHandleByPciBusId)(const char*, nvmlDevice_t*) = nullptr;
nvmlReturn_t (*pfn_nvmlDeviceGetP2PStatus)(nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t*) = nullptr;
ncclResult_t initResult = ncclSuccess;
bool initialized = false;
} // namespace

ncclResult_t ncclNvmlEnsureInitialized() {
  if (initialized) return initResult;
  initialized = true;
  initResult = ncclSystemError;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return initResult;
  struct Symbol { void** ppfn; char const* name; };
  Symbol symbols[] = {
    {(void**)&pfn_nvmlDeviceGetCount, "nvmlDeviceGetCount_v2"},
    {(void**)&pfn_nvmlDeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex"},
    {(void**)&pfn_nvmlDeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId"},
    {(void**)&pfn_nvmlDeviceGetP2PStatus, "nvmlDeviceGetP2PStatus"},
  };
  for (Symbol each : symbols) *each.ppfn = dlsym(library, each.name);
  unsigned count = 0;
  if (pfn_nvmlDeviceGetCount(&count) != NVML_SUCCESS) return initResult;
  ncclNvmlDeviceCount = int(count);
  for (int a = 0; a < ncclNvmlDeviceCount; a++)
    if (pfn_nvmlDeviceGetHandleByIndex(a, &ncclNvmlDevices[a].handle) != NVML_SUCCESS) return initResult;
  for (int a = 0; a < ncclNvmlDeviceCount; a++) {
    for (int b = 0; b < ncclNvmlDeviceCount; b++) {
      nvmlDevice_t da = ncclNvmlDevices[a].handle, db = ncclNvmlDevices[b].handle;
      auto& pair = ncclNvmlDevicePairs[a][b];
      if (pfn_nvmlDeviceGetP2PStatus(da, db, NVML_P2P_CAPS_INDEX_READ, &pair.p2pStatusRead) != NVML_SUCCESS) return initResult;
      if (pfn_nvmlDeviceGetP2PStatus(da, db, NVML_P2P_CAPS_INDEX_WRITE, &pair.p2pStatusWrite) != NVML_SUCCESS) return initResult;
    }
  }
  return initResult = ncclSuccess;
}

#define NVMLCHECK(name, ...) do { if (pfn_##name(__VA_ARGS__) != NVML_SUCCESS) return ncclSystemError; } while (0)

ncclResult_t ncclNvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  if (ncclNvmlEnsureInitialized() != ncclSuccess) return ncclSystemError;
  NVMLCHECK(nvmlDeviceGetHandleByPciBusId, pciBusId, device);
  return ncclSuccess;
}

// For the test: what ncclCommInitRank asks first of a GPU, and the pair (0, 0).
extern "C" int standinFirst(const char* pciBusId, void** device) {
  return ncclNvmlDeviceGetHandleByPciBusId(pciBusId, (nvmlDevice_t*)device);
}
extern "C" int standinPair() { return ncclNvmlDevicePairs[0][0].p2pStatusRead; }
