#include "train/memory.h"

#include <fstream>
#include <string>

namespace lorikeet::train {
namespace {

std::uint64_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size()));
  }
  return 0;
}

}  // namespace

std::uint64_t peak_resident_bytes() { return status_kib("VmHWM:") * 1024; }
std::uint64_t resident_bytes() { return status_kib("VmRSS:") * 1024; }

}  // namespace lorikeet::train
