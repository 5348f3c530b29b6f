#include "io/shard_index.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

bool is_bare_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.starts_with('.')) return false;
  return std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c == '/' || c == '\\' || c < 0x20 || c == 0x7F; });
}

}  // namespace

std::vector<std::string> ShardIndex::shards() const {
  std::set<std::string> unique;
  for (const auto& [tensor, shard] : shard_of) unique.insert(shard);
  return {unique.begin(), unique.end()};
}

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  JsonLimits limits;
  limits.max_depth = 8;
  const Json json = Json::parse(text, where, limits);
  ShardIndex index;
  for (const auto& [tensor, view] : JsonView(json, where).at("weight_map").members()) {
    const std::string& shard = view.as_string();
    if (!is_bare_name(shard) || !shard.ends_with(".safetensors")) {
      throw Error("[" + view.where() + "] expected the bare name of a .safetensors file, got '" +
                  escape_control(shard) + "'");
    }
    index.shard_of.emplace(tensor, shard);
  }
  if (index.shard_of.empty()) throw Error("[" + where + "] expected tensors in weight_map, got none");
  return index;
}

ShardIndex read_shard_index(const std::filesystem::path& path) {
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
  return parse_shard_index(read_file(path, kMostBytes), escape_control(path.string()));
}

}  // namespace lorikeet::io
