#include "recipes/agreed_facts.h"

#include "base/version.h"
#include "config/config.h"
#include "ops/reference_ops.h"
#include "recipes/source_fingerprint.h"

namespace lorikeet::recipes {

comm::Facts agreed_facts(const config::Settings& settings, const RunFolder::Identity& identity) {
  comm::Facts facts{{"version", std::string(kVersion)}, {"code", std::string(source_fingerprint())}};
  for (auto& field : config::field_values(settings, config::FingerprintScope::kAll)) {
    // An interface is a machine's own.
    if (field.first != "distributed.interface") facts.push_back(std::move(field));
  }
  facts.insert(facts.end(), {{"LORIKEET_REFERENCE_OPS", ops::reference_ops() ? "1" : "0"},
                             {"data", identity.data},
                             {"validation data", identity.validation},
                             {"base checkpoint", identity.model},
                             {"precision policy", identity.policy}});
  for (const auto& [name, value] : identity.architecture) facts.emplace_back("base's " + name, value);
  return facts;
}

}  // namespace lorikeet::recipes
