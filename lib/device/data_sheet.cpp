#include "device/data_sheet.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::device {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

const std::vector<DataSheet>& data_sheets() {
  // docs/plan.md names the sources.
  static const std::vector<DataSheet> kSheets = {{"B200", 2250, 183359, 8000, 5, 10, 0, 18, true},
                                                 {"H200", 989.4, 143771, 4800, 5, 9, 0, 18, true},
                                                 {"H100 PCIe", 756, 81559, 2000, 5, 9, 0},
                                                 {"H100 NVL", 835, 95830, 3900, 5, 9, 0},
                                                 {"H100", 989.4, 81559, 3350, 5, 9, 0, 18, true},
                                                 {"A100-SXM4-40GB", 311.9, 40960, 1555, 4, 8, 0, 12, true},
                                                 {"A100-PCIE-40GB", 311.9, 40960, 1555, 4, 8, 0},
                                                 {"A100 80GB PCIe", 311.9, 81920, 1935, 4, 8, 0},
                                                 {"A100", 311.9, 81920, 2039, 4, 8, 0, 12, true},
                                                 {"A10G", 70, 23028, 600, 4, 8, 6},
                                                 {"A10", 125, 23028, 600, 4, 8, 6},
                                                 {"A40", 149.7, 46068, 696, 4, 8, 6},
                                                 {"L40S", 362, 46068, 864, 4, 8, 9},
                                                 {"L40", 181, 46068, 864, 4, 8, 9},
                                                 {"L4", 121, 23034, 300, 4, 8, 9},
                                                 {"RTX A6000", 154.8, 49140, 768, 4, 8, 6},
                                                 {"RTX 5090", 209.5, 32607, 1792, 5, 12, 0},
                                                 {"RTX 4090", 165.2, 24564, 1008, 4, 8, 9},
                                                 {"RTX 4080", 97.5, 16376, 717, 4, 8, 9},
                                                 {"RTX 3090 Ti", 80, 24564, 1008, 4, 8, 6},
                                                 {"RTX 3090", 71.2, 24576, 936, 4, 8, 6},
                                                 {"RTX 3080", 59.5, 10240, 760, 4, 8, 6},
                                                 {"V100", 125, 32768, 900, 3, 7, 0, 6},
                                                 {"T4", 65, 15360, 300, 3, 7, 5}};
  return kSheets;
}

const DataSheet* find_data_sheet(std::string_view device_name) {
  const std::string name = lower(device_name);
  for (const DataSheet& sheet : data_sheets()) {
    if (name.find(lower(sheet.name)) != std::string::npos) return &sheet;
  }
  return nullptr;
}

const DataSheet& require_data_sheet(const std::string& device_name) {
  if (const DataSheet* found = find_data_sheet(device_name)) return *found;
  std::vector<std::string> known;
  for (const DataSheet& sheet : data_sheets()) known.emplace_back(sheet.name);
  throw Error("[--gpu] no data sheet of '" + escape_control(device_name) + "'" +
              did_you_mean(device_name, known) + "; known are " + join(known, ", ") +
              "; for any other give --device-memory, --flops-per-second and --bandwidth");
}

}  // namespace lorikeet::device
