#include "models/fingerprint.h"

#include <string_view>

#include "base/counted.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

constexpr std::size_t kDigits = io::TensorDigest::kHexDigits;

void add_text(WeightDigests& digests, std::string_view text) {
  if (text.size() != digests.size() * kDigits) {
    throw Error("[model.path] expected the digests of " + std::to_string(digests.size()) +
                " tensors from each rank, got " + std::to_string(text.size() / kDigits));
  }
  for (auto& [name, digest] : digests) {
    digest += io::TensorDigest::from_hex(text.substr(0, kDigits));
    text.remove_prefix(kDigits);
  }
}

WeightDigests without_values(const WeightDigests& names) {
  WeightDigests digests = names;
  for (auto& [name, digest] : digests) digest = {};
  return digests;
}

}  // namespace

std::string base_fingerprint(const nn::Architecture& architecture, const WeightDigests& weights) {
  Sha256 hash;
  hash.field("lorikeet base 2").field(std::to_string(architecture.size()));
  for (const auto& [name, value] : architecture) hash.field(name).field(value);
  for (const auto& [name, digest] : weights) hash.field(name).field(digest.hex());
  return hash.hex();
}

std::string digests_text(const WeightDigests& weights) {
  std::string text;
  for (const auto& [name, digest] : weights) text += digest.hex();
  return text;
}

WeightDigests combine_digests(const WeightDigests& names, const std::vector<std::string>& texts, int degree) {
  const auto step = static_cast<std::size_t>(degree);
  WeightDigests first;
  for (std::size_t rank = 0; rank < texts.size(); rank += step) {
    WeightDigests copy = without_values(names);
    for (std::size_t part = rank; part < std::min(rank + step, texts.size()); ++part)
      add_text(copy, texts[part]);
    if (rank == 0)
      first = std::move(copy);
    else if (const auto changed = changed_tensors(first, copy); !changed.empty()) {
      throw Error("[model.path] ranks read different weights: " + std::to_string(changed.size()) + " of " +
                  counted(names.size(), "tensor") + ", " + escape_control(changed.front()) +
                  " among them, differ between rank 0 and rank " + std::to_string(rank) +
                  "; give all machines the same checkpoint");
    }
  }
  return first;
}

std::vector<std::string> changed_tensors(const WeightDigests& before, const WeightDigests& now) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : before) {
    const auto found = now.find(name);
    if (found == now.end() || found->second != digest) names.push_back(name);
  }
  for (const auto& [name, digest] : now) {
    if (!before.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace lorikeet::models
