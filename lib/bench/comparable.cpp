#include "bench/comparable.h"

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/strings.h"
#include "config/config.h"

namespace lorikeet::bench {
namespace {

constexpr std::size_t kShownOfAFingerprint = 12;

}  // namespace

std::vector<std::string> differences(const RunRecord& a, const RunRecord& b) {
  std::vector<std::string> found;
  const auto compare = [&](const char* what, const std::string& one, const std::string& other) {
    if (one == other) return;
    found.push_back(std::string(what) + ": " + one.substr(0, kShownOfAFingerprint) + " and " +
                    other.substr(0, kShownOfAFingerprint));
  };
  compare("program version", a.version, b.version);
  compare("code", a.code, b.code);
  compare("libtorch", a.libtorch, b.libtorch);
  // Runs of other versions of this program may have been fingerprinted by other functions too.
  const auto compare_fingerprints = [&](const char* what, const std::string& one, const std::string& other) {
    const auto both = comparable_fingerprints(one, other).value_or(std::pair(one, other));
    compare(what, both.first, both.second);
  };
  compare_fingerprints("base model", a.model, b.model);
  compare_fingerprints("data", a.data, b.data);
  compare_fingerprints("precision policy", a.policy, b.policy);
  if (a.settings == b.settings) return found;
  const auto settings_a = config::parse_settings(a.settings, a.name);
  const auto settings_b = config::parse_settings(b.settings, b.name);
  for (const auto& d : config::differences(settings_a, settings_b, config::FingerprintScope::kNumbers)) {
    // A place is not what is read there, and fingerprints tell that.
    if (d.name == "model.path" || d.name == "data.train.path" || d.name == "data.validation.path") continue;
    found.push_back(d.name + ": " + d.old_value + " and " + d.new_value);
  }
  if (settings_a.metrics.profile_steps != settings_b.metrics.profile_steps)
    found.emplace_back("metrics.profile_steps: traced steps are slower, and only one run has these");
  return found;
}

void require_comparable(const std::vector<const RunRecord*>& runs) {
  for (const RunRecord* run : runs) {
    const std::vector<std::string> found = differences(*runs.front(), *run);
    if (found.empty()) continue;
    throw Error("[bench] " + runs.front()->name + " and " + run->name +
                " did different work, so that their rates can't be compared: " + join(found, "; "));
  }
}

}  // namespace lorikeet::bench
