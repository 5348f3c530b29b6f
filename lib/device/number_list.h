#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::device {

/// Numbers of CPUs or NUMA nodes as Linux and nvidia-smi list them: "0-19,40-59" to {0, ..., 19, 40, ..., 59}
/// and back; ascending, each once. Empty for what is no such list or holds a number above 65535.
std::optional<std::vector<int>> parse_number_list(std::string_view text);
std::string format_number_list(const std::vector<int>& numbers);

/// A decimal number of at most `most`, written with digits alone.
std::optional<int> parse_decimal(std::string_view text, int most);

}  // namespace lorikeet::device
