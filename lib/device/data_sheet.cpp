#include "device/data_sheet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::device {
namespace {

constexpr double kMibPerGib = 1024;
constexpr double kBytesPerMib = 1048576;

// A card's name by what its words say.
struct Name {
  std::vector<std::string> model;  // "rtx", "3080": what is neither of the below nor the maker's
  std::string form;                // "SXM", "PCIe" or "NVL"; "" where it isn't said
  std::string gigabytes;           // digits; "" where it isn't said
};

// In lower case. All else than letters and digits parts words: "A100-SXM4-40GB" has three.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : ascii_lower(text)) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string form_of(std::string_view word) {
  if (word.starts_with("sxm") || word == "hgx" || word == "dgx") return "SXM";
  if (word == "pcie") return "PCIe";
  return word == "nvl" ? "NVL" : "";
}

Name parse_name(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kUnits{"gb", "gib", "g"};
  static constexpr std::array<std::string_view, 10> kSayNothing{
      "nvidia", "geforce", "tesla", "quadro", "generation", "gpu", "hbm2", "hbm2e", "hbm3", "hbm3e"};
  constexpr std::size_t kMostDigits = 4;
  Name name;
  const std::vector<std::string> words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string digits = word.substr(0, word.find_first_not_of("0123456789"));
    const bool apart = digits.size() == word.size() && i + 1 < words.size();  // "40 GB"
    const bool short_number = !digits.empty() && digits.size() <= kMostDigits;
    if (short_number && is_one_of(kUnits, apart ? words[i + 1] : word.substr(digits.size()))) {
      name.gigabytes = digits;
      if (apart) ++i;
    } else if (const std::string form = form_of(word); !form.empty()) {
      name.form = form;
    } else if (!is_one_of(kSayNothing, word)) {
      name.model.push_back(word);
    }
  }
  return name;
}

// Whether `words` has all of `part`, one behind the other, and behind them no word that makes it another
// card.
bool names_same_card(const std::vector<std::string>& words, const std::vector<std::string>& part) {
  static constexpr std::array<std::string_view, 8> kVariants{"ti",  "super", "laptop", "mobile",
                                                             "max", "d",     "ada",    "mig"};
  if (part.empty()) return false;
  const auto at = std::search(words.begin(), words.end(), part.begin(), part.end());
  if (at == words.end()) return false;
  return std::none_of(at + std::ssize(part), words.end(),
                      [](const std::string& word) { return is_one_of(kVariants, word); });
}

std::vector<std::string> model_of(const DataSheet& sheet) { return parse_name(sheet.name).model; }

// "" of a board that there is in one form alone.
std::string form_of(const DataSheet& sheet) {
  const std::string named = parse_name(sheet.name).form;
  return named.empty() && sheet.nvlinks > 0 ? "SXM" : named;
}

bool agrees_in_form(const DataSheet& sheet, const Name& name) {
  const std::string form = form_of(sheet);
  return name.form.empty() || name.form == form || (form.empty() && name.form == "PCIe");
}

// A tenth, since vendors count in decimal units and drivers leave out what ECC takes.
bool agrees_in_size(const DataSheet& sheet, const Name& name) {
  constexpr double kTolerance = 0.1;
  if (name.gigabytes.empty() || name.gigabytes == parse_name(sheet.name).gigabytes) return true;
  const double gib = sheet.memory_mib / kMibPerGib;
  return std::abs(std::stod(name.gigabytes) - gib) <= kTolerance * gib;
}

// All variants of the one model that `wanted` names, in whole or by a part that no other has ("4090"); empty
// where it names none or several.
std::vector<const DataSheet*> find_variants(const std::vector<std::string>& wanted) {
  std::vector<const DataSheet*> whole, part;
  for (const DataSheet& sheet : data_sheets()) {
    const std::vector<std::string> model = model_of(sheet);
    if (join(model, "") == join(wanted, "")) whole.push_back(&sheet);  // "rtx4090"
    if (names_same_card(model, wanted)) part.push_back(&sheet);
  }
  if (!whole.empty()) return whole;
  const bool one_model = std::all_of(
      part.begin(), part.end(), [&](const auto* sheet) { return model_of(*sheet) == model_of(*part[0]); });
  return one_model ? part : std::vector<const DataSheet*>();
}

std::string describe(const DataSheet& sheet) {
  const std::string form = form_of(sheet);
  return std::string(sheet.name) + " (" + (form.empty() ? "" : form + ", ") +
         format_number("%.1f GiB)", sheet.memory_mib / kMibPerGib);
}

}  // namespace

const std::vector<DataSheet>& data_sheets() {
  // docs/plan.md names the sources.
  static const std::vector<DataSheet> kSheets = {{"B200", 2250, 183359, 8000, 5, 10, 0, 18},
                                                 {"GH200 480GB", 989.4, 97871, 4000, 5, 9, 0},
                                                 {"H200", 989.4, 143771, 4800, 5, 9, 0, 18},
                                                 {"H200 NVL", 835.5, 143771, 4800, 5, 9, 0},
                                                 {"H100", 989.4, 81559, 3350, 5, 9, 0, 18},
                                                 {"H100 PCIe", 756, 81559, 2000, 5, 9, 0},
                                                 {"H100 NVL", 835.5, 95830, 3900, 5, 9, 0},
                                                 {"H800", 989.4, 81559, 3350, 5, 9, 0, 8},
                                                 {"H800 PCIe", 756, 81559, 2000, 5, 9, 0},
                                                 {"H20", 148, 97871, 4000, 5, 9, 0, 18},
                                                 {"A100", 311.9, 81920, 2039, 4, 8, 0, 12},
                                                 {"A100-SXM4-40GB", 311.9, 40960, 1555, 4, 8, 0, 12},
                                                 {"A100 80GB PCIe", 311.9, 81920, 1935, 4, 8, 0},
                                                 {"A100-PCIE-40GB", 311.9, 40960, 1555, 4, 8, 0},
                                                 {"A800-SXM4-80GB", 311.9, 81920, 2039, 4, 8, 0, 8},
                                                 {"A800 80GB PCIe", 311.9, 81920, 1935, 4, 8, 0},
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
                                                 {"RTX 3080 12GB", 61.3, 12288, 912, 4, 8, 6},
                                                 {"T4", 65, 15360, 300, 3, 7, 5}};
  return kSheets;
}

const DataSheet* find_data_sheet(std::string_view driver_name, std::uint64_t memory_bytes) {
  const Name name = parse_name(driver_name);
  double mib = static_cast<double>(memory_bytes) / kBytesPerMib;
  if (mib == 0 && !name.gigabytes.empty()) mib = std::stod(name.gigabytes) * kMibPerGib;
  const DataSheet* nearest = nullptr;
  std::pair<bool, double> least;  // another form; how far its memory is off
  for (const DataSheet& sheet : data_sheets()) {
    if (!names_same_card(name.model, model_of(sheet))) continue;
    const std::pair<bool, double> distance{!agrees_in_form(sheet, name),
                                           mib > 0 ? std::abs(std::log(sheet.memory_mib / mib)) : 0};
    if (nearest != nullptr && distance >= least) continue;
    nearest = &sheet;
    least = distance;
  }
  return nearest;
}

const DataSheet& require_data_sheet(const std::string& wanted) {
  constexpr const char* kOtherwise =
      " describe a card by --device-memory, --flops-per-second and --bandwidth";
  const Name name = parse_name(wanted);
  const std::vector<const DataSheet*> variants = find_variants(name.model);
  std::vector<std::string> known;
  for (const DataSheet* sheet : variants) {
    if (agrees_in_form(*sheet, name) && agrees_in_size(*sheet, name)) return *sheet;
    known.push_back(describe(*sheet));
  }
  if (!variants.empty())
    throw Error("[--gpu] expected one of " + join(known, ", ") + ", got '" + escape_control(wanted) +
                "'; name one of these, or" + kOtherwise);
  for (const DataSheet& sheet : data_sheets()) known.emplace_back(sheet.name);
  throw Error("[--gpu] no data sheet of '" + escape_control(wanted) + "'" + did_you_mean(wanted, known) +
              "; known are " + join(known, ", ") + "; or" + kOtherwise);
}

}  // namespace lorikeet::device
