#include "probe/build_facts.h"

#include <algorithm>

#include "base/strings.h"
#include "device/number_list.h"

// LORIKEET_CUDA_VERSION and LORIKEET_CUDA_ARCHITECTURES come from CMakeLists.txt.
namespace lorikeet::probe {

BuildFacts build_facts() {
  BuildFacts facts{.cuda = LORIKEET_CUDA_VERSION};
  for (const std::string& one : split(LORIKEET_CUDA_ARCHITECTURES, ',')) {
    if (!one.empty()) facts.architectures.push_back(one);
  }
  return facts;
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool runs_on(const std::string& architecture, int major, int minor) {
  const std::vector<std::string> parts = split(architecture, '-');
  std::string number = parts[0];
  const char letter = !number.empty() && (number.back() == 'a' || number.back() == 'f') ? number.back() : ' ';
  if (letter != ' ') number.pop_back();
  constexpr int kMost = 1000;
  const auto built = device::parse_decimal(number, kMost);
  if (!built || *built < 10) return false;
  const int built_major = *built / 10, built_minor = *built % 10;
  if (letter == 'a') return built_major == major && built_minor == minor;
  const bool machine_code = built_major == major && built_minor <= minor;
  if (letter == 'f') return machine_code;
  const bool ptx = parts.size() == 1 || parts[1] == "virtual";
  const bool binary = parts.size() == 1 || parts[1] == "real";
  return (binary && machine_code) || (ptx && *built <= 10 * major + minor);
}

}  // namespace lorikeet::probe
