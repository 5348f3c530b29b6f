#include "device/data_sheet.h"

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::device {
namespace {

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); }

// Where `part` stands in `name` as whole words, or npos; both in lower case. "a40" isn't in "rtx a4000".
std::size_t find_words(const std::string& name, const std::string& part) {
  std::size_t at = name.find(part);
  for (; at != std::string::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || !is_word(name[at - 1])) && (end == name.size() || !is_word(name[end]))) break;
  }
  return at;
}

// Words that make another card of the one whose name stands before them.
bool names_a_variant(const std::string& rest) {
  for (const char* word : {"ti", "super", "laptop", "mobile", "max-q", "d", "ada"}) {
    if (find_words(rest, word) != std::string::npos) return true;
  }
  return false;
}

// The one card whose name holds `part` and says no more of a variant: "4090", "6000 ada"; nullptr where none
// or several do.
const DataSheet* find_by_part(const std::string& part) {
  const std::string words = ascii_lower(part);
  if (words.empty()) return nullptr;
  const auto without_spaces = [](std::string text) {
    std::erase(text, ' ');
    return text;
  };
  const DataSheet* found = nullptr;
  for (const DataSheet& sheet : data_sheets()) {
    const std::string name = ascii_lower(sheet.name);
    if (without_spaces(name) == without_spaces(words)) return &sheet;  // "rtx4090"
    const std::size_t at = find_words(name, words);
    if (at == std::string::npos || names_a_variant(name.substr(at + words.size()))) continue;
    if (found != nullptr) return nullptr;
    found = &sheet;
  }
  return found;
}

}  // namespace

const std::vector<DataSheet>& data_sheets() {
  // docs/plan.md names the sources.
  static const std::vector<DataSheet> kSheets = {{"B200", 2250, 183359, 8000, 5, 10, 0, 18},
                                                 {"GH200 480GB", 989.4, 97871, 4000, 5, 9, 0},
                                                 {"H200", 989.4, 143771, 4800, 5, 9, 0, 18},
                                                 {"H100 PCIe", 756, 81559, 2000, 5, 9, 0},
                                                 {"H100 NVL", 835, 95830, 3900, 5, 9, 0},
                                                 {"H100", 989.4, 81559, 3350, 5, 9, 0, 18},
                                                 {"H800", 989.4, 81559, 3350, 5, 9, 0, 8},
                                                 {"H20", 148, 97871, 4000, 5, 9, 0, 18},
                                                 {"A100-SXM4-40GB", 311.9, 40960, 1555, 4, 8, 0, 12},
                                                 {"A100-PCIE-40GB", 311.9, 40960, 1555, 4, 8, 0},
                                                 {"A100 80GB PCIe", 311.9, 81920, 1935, 4, 8, 0},
                                                 {"A100", 311.9, 81920, 2039, 4, 8, 0, 12},
                                                 {"A800-SXM4-80GB", 311.9, 81920, 2039, 4, 8, 0, 8},
                                                 {"A30", 165, 24576, 933, 4, 8, 0},
                                                 {"A10G", 70, 23028, 600, 4, 8, 6},
                                                 {"A10", 125, 23028, 600, 4, 8, 6},
                                                 {"A40", 149.7, 46068, 696, 4, 8, 6},
                                                 {"L40S", 362, 46068, 864, 4, 8, 9},
                                                 {"L40", 181, 46068, 864, 4, 8, 9},
                                                 {"L4", 121, 23034, 300, 4, 8, 9},
                                                 {"RTX 6000 Ada", 364.2, 49140, 960, 4, 8, 9},
                                                 {"RTX A6000", 154.8, 49140, 768, 4, 8, 6},
                                                 {"RTX A5000", 111.1, 24564, 768, 4, 8, 6},
                                                 {"RTX 5090", 209.5, 32607, 1792, 5, 12, 0},
                                                 {"RTX 5080", 112.6, 16303, 960, 5, 12, 0},
                                                 {"RTX 4090", 165.2, 24564, 1008, 4, 8, 9},
                                                 {"RTX 4080 SUPER", 104.4, 16376, 736, 4, 8, 9},
                                                 {"RTX 4080", 97.5, 16376, 717, 4, 8, 9},
                                                 {"RTX 3090 Ti", 80, 24564, 1008, 4, 8, 6},
                                                 {"RTX 3090", 71.2, 24576, 936, 4, 8, 6},
                                                 {"RTX 3080 Ti", 68.2, 12288, 912, 4, 8, 6},
                                                 {"RTX 3080", 59.5, 10240, 760, 4, 8, 6},
                                                 {"T4", 65, 15360, 300, 3, 7, 5}};
  return kSheets;
}

const DataSheet* find_data_sheet(std::string_view device_name) {
  const std::string name = ascii_lower(device_name);
  if (find_words(name, "mig") != std::string::npos) return nullptr;
  for (const DataSheet& sheet : data_sheets()) {
    const std::size_t at = find_words(name, ascii_lower(sheet.name));
    if (at != std::string::npos && !names_a_variant(name.substr(at + sheet.name.size()))) return &sheet;
  }
  return nullptr;
}

const DataSheet& require_data_sheet(const std::string& device_name) {
  if (const DataSheet* found = find_data_sheet(device_name)) return *found;
  if (const DataSheet* found = find_by_part(device_name)) return *found;
  std::vector<std::string> known;
  for (const DataSheet& sheet : data_sheets()) known.emplace_back(sheet.name);
  throw Error("[--gpu] no data sheet of '" + escape_control(device_name) + "'" +
              did_you_mean(device_name, known) + "; known are " + join(known, ", ") +
              "; for any other give --device-memory, --flops-per-second and --bandwidth");
}

}  // namespace lorikeet::device
