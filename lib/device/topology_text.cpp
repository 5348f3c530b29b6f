#include "device/topology_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "device/number_list.h"

namespace lorikeet::device {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kTab = 8;
constexpr int kMostIndex = 1023;

constexpr std::array<std::string_view, 3> kColumns = {"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"};

// A word of a line and the terminal column it starts at.
struct Word {
  std::string text;
  std::size_t column;
};

// A line as a terminal shows it: without escape sequences, tabs as blanks up to the next multiple of eight.
// The tool sets its columns by tabs, so that an empty cell is seen only this way.
std::string as_shown(std::string_view line) {
  std::string shown;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    } else if (c == '\t') {
      shown.append(kTab - shown.size() % kTab, ' ');
    } else if (c != '\r') {
      shown += c;
    }
  }
  return shown;
}

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    words.push_back({std::string(line.substr(at, end - at)), at});
    at = line.find_first_not_of(' ', end);
  }
  return words;
}

// The number of "GPU12" or "NIC3".
std::optional<int> number_after(std::string_view prefix, std::string_view label) {
  if (!label.starts_with(prefix)) return std::nullopt;
  return parse_decimal(label.substr(prefix.size()), kMostIndex);
}

std::optional<Link> link_of(std::string_view label) {
  if (label == "SOC") return Link{LinkKind::kSys, 0, {}};  // drivers before 2017
  return parse_link(label);
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : where_(where) {
    if (text.size() > kMostBytes)
      throw Error("[topology] " + where + ": expected a matrix of at most 1 MiB, got " +
                  format_bytes(text.size()));
    for (const std::string& line : split(text, '\n')) lines_.push_back(as_shown(line));
  }

  Topology parse() {
    find_header();
    read_header();
    read_rows();
    check_symmetry();
    read_legend();
    if (!listed_.empty() && listed_.size() != topology_.gpus.size()) {
      topology_.notes.push_back("the list of GPUs has " + std::to_string(listed_.size()) + ", the matrix " +
                                std::to_string(topology_.gpus.size()) + ": are they of one machine?");
    }
    for (TopologyGpu& gpu : topology_.gpus) {
      const auto listed = listed_.find(number_after("GPU", gpu.label).value_or(-1));
      if (listed == listed_.end()) continue;
      gpu.model = listed->second.model;
      gpu.uuid = listed->second.uuid;
      gpu.mig = listed->second.mig;
    }
    return std::move(topology_);
  }

 private:
  struct Listed {
    std::optional<std::string> model, uuid;
    bool mig = false;
  };

  [[noreturn]] void fail(std::size_t line, const std::string& what) const {
    throw Error("[topology] " + where_ + " line " + std::to_string(line + 1) + ": " + what);
  }

  void require_printable(const std::string& name) const {
    if (escape_control(name) != name) fail(line_, "'" + escape_control(name) + "' is no name of a device");
  }

  // "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-...)" and, below it, "  MIG 1g.10gb  Device 0: (UUID: MIG-...)".
  void read_listed(const std::vector<Word>& words, const std::string& line) {
    if (words[0].text == "MIG" && last_listed_ != nullptr) last_listed_->mig = true;
    if (words[0].text != "GPU" || words.size() < 3 || !words[1].text.ends_with(':')) return;
    const auto index = parse_decimal(words[1].text.substr(0, words[1].text.size() - 1), kMostIndex);
    if (!index) return;
    Listed& listed = listed_[*index];
    const std::size_t name = words[2].column, open = line.find(" (UUID: ", name);
    listed.model = escape_control(trim(line.substr(name, open - name)));
    if (open != std::string::npos) {
      const std::size_t uuid = open + 8;
      listed.uuid = escape_control(line.substr(uuid, std::min(line.find(')', uuid), line.size()) - uuid));
    }
    last_listed_ = &listed;
  }

  // The first line that begins with GPU<n> and goes on with anything but a link.
  void find_header() {
    for (; line_ < lines_.size(); ++line_) {
      const auto words = words_of(lines_[line_]);
      if (words.empty()) continue;
      if (number_after("GPU", words[0].text) && (words.size() == 1 || !link_of(words[1].text))) return;
      read_listed(words, lines_[line_]);
    }
    throw Error("[topology] " + where_ +
                ": expected the matrix that `nvidia-smi topo -m` prints, found no line of GPU0, GPU1, ...");
  }

  void read_header() {
    const std::string& line = lines_[line_];
    std::size_t end = line.size();
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      columns_[i] = line.find(kColumns[i]);
      end = std::min(end, columns_[i]);
    }
    for (const Word& word : words_of(std::string_view(line).substr(0, end))) {
      require_printable(word.text);
      if (std::find(labels_.begin(), labels_.end(), word.text) != labels_.end())
        fail(line_, "'" + escape_control(word.text) + "' heads two columns");
      if (labels_.size() == kMostTopologyDevices)
        fail(line_, "expected at most " + std::to_string(kMostTopologyDevices) + " devices");
      if (number_after("GPU", word.text)) {
        if (!topology_.nics.empty()) fail(line_, "a GPU's column stands behind a NIC's");
        topology_.gpus.emplace_back().label = word.text;
      } else {
        // Older drivers head the column with the interface's name.
        const bool numbered = number_after("NIC", word.text).has_value();
        topology_.nics.push_back({word.text, numbered ? "" : word.text});
      }
      labels_.push_back(word.text);
    }
    topology_.links.assign(labels_.size(), std::vector<Link>(labels_.size()));
    ++line_;
  }

  void read_rows() {
    for (std::size_t row = 0; row < labels_.size(); ++line_) {
      if (line_ == lines_.size())
        fail(line_ - 1, "the matrix ends here, expected a row for '" + escape_control(labels_[row]) + "'");
      const auto words = words_of(lines_[line_]);
      if (!words.empty()) read_row(row++, words);
    }
  }

  void read_row(std::size_t row, const std::vector<Word>& words) {
    const std::string who = "row '" + escape_control(labels_[row]) + "'";
    if (words[0].text != labels_[row])
      fail(line_, "expected " + who + ", got '" + escape_control(words[0].text) + "'");
    const std::size_t count = labels_.size();
    for (std::size_t column = 0; column < count; ++column) {
      if (column + 1 >= words.size())
        fail(line_, who + " has " + std::to_string(column) + " links, expected " + std::to_string(count));
      const std::string& label = words[column + 1].text;
      const auto link = link_of(label);
      if (!link)
        fail(line_, "'" + escape_control(label) + "' in column '" + escape_control(labels_[column]) +
                        "' is no link class; expected X, NV#, PIX, PXB, PHB, NODE, SYS or N/A");
      if ((link->kind == LinkKind::kSelf) != (row == column))
        fail(line_, who + " has '" + label + "' in column '" + escape_control(labels_[column]) +
                        "'; X stands on the diagonal and only there");
      topology_.links[row][column] = *link;
    }
    row_lines_.push_back(line_);
    read_affinities(row, {words.begin() + static_cast<std::ptrdiff_t>(count) + 1, words.end()});
  }

  // Where all cells are filled they follow the header's order; where some are empty, a cell belongs to the
  // last column that begins before it ends.
  void read_affinities(std::size_t row, const std::vector<Word>& words) {
    std::vector<std::size_t> present;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] != std::string::npos) present.push_back(i);
    }
    if (words.size() > present.size())
      fail(line_, "expected at most " + std::to_string(present.size()) + " cells behind the links, got " +
                      std::to_string(words.size()));
    std::array<const std::string*, kColumns.size()> cells{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::size_t column = present[i];
      if (words.size() < present.size()) {
        for (const std::size_t candidate : present) {
          if (columns_[candidate] < words[i].column + words[i].text.size()) column = candidate;
        }
      }
      if (cells[column] != nullptr)
        fail(line_, "two cells stand under '" + std::string(kColumns[column]) + "'");
      cells[column] = &words[i].text;
    }
    if (row >= topology_.gpus.size()) return;  // a NIC's affinity isn't used
    TopologyGpu& gpu = topology_.gpus[row];
    gpu.cpus = list_in(cells[0], 0);
    gpu.numa_nodes = list_in(cells[1], 1);
    const auto own = list_in(cells[2], 2);
    if (own.size() == 1) gpu.memory_numa_node = own[0];
  }

  std::vector<int> list_in(const std::string* cell, std::size_t column) const {
    if (cell == nullptr || *cell == "N/A") return {};
    auto numbers = parse_number_list(*cell);
    if (!numbers)
      fail(line_, "'" + escape_control(*cell) + "' under '" + std::string(kColumns[column]) +
                      "' is no list of numbers, like 0-19,40-59");
    return *std::move(numbers);
  }

  void check_symmetry() const {
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Link &here = topology_.links[i][j], &there = topology_.links[j][i];
        if (here == there) continue;
        fail(row_lines_[i], "'" + escape_control(labels_[i]) + "' to '" + escape_control(labels_[j]) +
                                "' is " + here.label() + ", and back it is " + there.label() + " (line " +
                                std::to_string(row_lines_[j] + 1) + ")");
      }
    }
  }

  // "NIC0: mlx5_0" anywhere below the matrix, or `nvidia-smi -L` there.
  void read_legend() {
    for (; line_ < lines_.size(); ++line_) {
      const auto words = words_of(lines_[line_]);
      if (!words.empty()) read_listed(words, lines_[line_]);
      if (words.size() != 2 || !words[0].text.ends_with(':')) continue;
      const std::string label = words[0].text.substr(0, words[0].text.size() - 1);
      for (TopologyNic& nic : topology_.nics) {
        if (nic.label != label) continue;
        require_printable(words[1].text);
        nic.name = words[1].text;
      }
    }
  }

  std::string where_;
  std::vector<std::string> lines_;
  std::size_t line_ = 0;
  std::vector<std::string> labels_;
  std::array<std::size_t, kColumns.size()> columns_{};
  std::vector<std::size_t> row_lines_;
  std::map<int, Listed> listed_;
  Listed* last_listed_ = nullptr;
  Topology topology_;
};

}  // namespace

Topology parse_topology_text(std::string_view text, const std::string& where) {
  return Parser(text, where).parse();
}

}  // namespace lorikeet::device
