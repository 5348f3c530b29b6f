#include "recipes/base_record.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/strings.h"
#include "io/checkpoint.h"

namespace lorikeet::recipes {

Json architecture_json(const nn::Architecture& architecture) {
  return Json::Object(architecture.begin(), architecture.end());
}

Json tensors_json(const models::WeightDigests& tensors) {
  Json::Object members;
  for (const auto& [name, digest] : tensors) members.emplace_back(name, digest.hex());
  return {std::move(members)};
}

std::string architecture_difference(const JsonView& recorded, const nn::Architecture& now) {
  std::map<std::string, std::pair<std::string, std::string>> values;  // there, now
  for (const auto& [name, value] : recorded.members()) values[name].first = value.as_string();
  for (const auto& [name, value] : now) values[name].second = value;
  const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
  std::vector<std::string> lines;
  for (const auto& [name, both] : values) {
    if (both.first != both.second)
      lines.push_back(name + ": " + shown(both.first) + " there, " + shown(both.second) + " now");
  }
  return join(lines, "; ");
}

std::string tensors_difference(const JsonView& recorded, const models::WeightDigests& now,
                               const std::filesystem::path& base) {
  static constexpr std::size_t kShown = 4;
  models::WeightDigests before;
  for (const auto& [name, hex] : recorded.members())
    before.emplace(name, io::TensorDigest::from_hex(hex.as_string()));
  const std::vector<std::string> changed = models::changed_tensors(before, now);
  const io::Checkpoint checkpoint = io::Checkpoint::open(base);
  std::vector<std::string> parts{std::to_string(changed.size()) + " of " + counted(now.size(), "tensor")};
  for (const std::string& name : changed) {
    const io::TensorView* tensor = checkpoint.find(name);
    parts.push_back(name + (tensor == nullptr
                                ? std::string()
                                : " (" + checkpoint.files()[tensor->file].path().filename().string() + ")"));
  }
  return escape_control(join_some(parts, 1 + kShown));
}

}  // namespace lorikeet::recipes
