// A libcuda.so.1 with two cards, as far as lib/device/cuda_driver.cpp and cuda_version.cpp ask.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "card/capability.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kCards = 2;
constexpr int kCudaVersion = 13000;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCapabilityMinor = 76;
constexpr std::size_t kMemoryMib = std::size_t{80} << 10;

// FAKE_CARD_TOTAL_MIB; what can be had of it is FAKE_CARD_MIB's affair.
std::size_t memory_mib() {
  const char* const text = std::getenv("FAKE_CARD_TOTAL_MIB");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : kMemoryMib;
}

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
int cuDeviceGetUuid_v2(unsigned char* uuid, int ordinal) {
  std::memset(uuid, ordinal + 1, 16);
  return kSuccess;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = memory_mib() << 20;
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
