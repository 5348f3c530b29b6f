#include "comm/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::comm {
namespace {

constexpr std::size_t kMostHosts = 100'000;

[[noreturn]] void fail(std::string_view list, const std::string& problem) {
  throw Error("[launch] node list '" + escape_control(list) + "': " + problem +
              "; expected something like gpu[01-03,07],login1");
}

std::uint64_t number(std::string_view text, std::string_view list) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > 9) {
    fail(list, "'" + escape_control(text) + "' is not a number of at most nine digits");
  }
  return value;
}

// "01-03" -> 01, 02, 03, as wide as the first is written.
std::vector<std::string> expand_range(std::string_view range, std::string_view list) {
  const std::size_t dash = range.find('-');
  const std::string_view from = range.substr(0, dash);
  const std::uint64_t first = number(from, list);
  const std::uint64_t last = dash == std::string_view::npos ? first : number(range.substr(dash + 1), list);
  if (last < first) fail(list, "the range " + std::string(range) + " runs backwards");
  if (last - first >= kMostHosts) fail(list, "it names over 100,000 hosts");
  std::vector<std::string> out;
  for (std::uint64_t value = first; value <= last; ++value) {
    std::string digits = std::to_string(value);
    if (digits.size() < from.size()) digits.insert(0, from.size() - digits.size(), '0');
    out.push_back(std::move(digits));
  }
  return out;
}

// One name with its brackets: "rack[1-2]node[1-2]".
std::vector<std::string> expand_name(std::string_view name, std::string_view list) {
  std::vector<std::string> hosts{""};
  while (!name.empty()) {
    const std::size_t open = name.find('[');
    for (std::string& host : hosts) host += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = name.find(']', open);
    if (close == std::string_view::npos) fail(list, "a '[' without its ']'");
    std::vector<std::string> parts, all;
    for (const std::string& range : split(name.substr(open + 1, close - open - 1), ',')) {
      for (std::string& part : expand_range(range, list)) parts.push_back(std::move(part));
    }
    if (hosts.size() * parts.size() > kMostHosts) fail(list, "it names over 100,000 hosts");
    for (const std::string& host : hosts) {
      for (const std::string& part : parts) all.push_back(host + part);
    }
    hosts = std::move(all);
    name.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> parse_host_list(std::string_view list) {
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[' && ++depth > 1) fail(list, "a '[' inside another");
    if (c == ']' && --depth < 0) fail(list, "a ']' without its '['");
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    if (i == begin) fail(list, "an empty name");
    for (std::string& host : expand_name(list.substr(begin, i - begin), list)) {
      hosts.push_back(std::move(host));
      if (hosts.size() > kMostHosts) fail(list, "it names over 100,000 hosts");
    }
    begin = i + 1;
  }
  return hosts;
}

}  // namespace lorikeet::comm
