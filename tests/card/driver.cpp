// A libcuda.so.1 with two cards, as far as lib/device/cuda_driver.cpp and cuda_version.cpp ask.
#include <cstddef>
#include <cstring>

#include "card/capability.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kCards = 2;
constexpr int kCudaVersion = 13000;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCapabilityMinor = 76;
constexpr std::size_t kMemoryBytes = std::size_t{80} << 30;

}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = kCards;
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
int cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "NVIDIA H100 80GB HBM3", static_cast<std::size_t>(length));
  return kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = kMemoryBytes;
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = lorikeet::card::capability();
  *value = attribute == kCapabilityMajor   ? capability / 10
           : attribute == kCapabilityMinor ? capability % 10
                                           : 0;
  return kSuccess;
}

}  // extern "C"
