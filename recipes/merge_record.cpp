#include "recipes/merge_record.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/file_notes.h"
#include "peft/adapter_folder.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kAdapters = "adapters";

std::string hash_of(const std::filesystem::path& adapter) {
  return data::file_sha256(adapter / peft::kAdapterTensors);
}

// The hashes of the record in `model`; none where it has no record, or one that says nothing.
Json::Array recorded(const std::filesystem::path& model) {
  const std::filesystem::path file = model / kMergeRecord;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  try {
    const Json record = Json::parse(read_file(file), file.string());
    const Json* hashes = record.find(kAdapters);
    return hashes != nullptr && hashes->is_array() ? hashes->array() : Json::Array{};
  } catch (const Error& error) {
    log_warning(std::string("[merge] the record of what was merged can't be read: ") + error.what());
    return {};
  }
}

}  // namespace

void record_merged(const std::filesystem::path& merged, const std::filesystem::path& adapter) {
  Json::Array hashes = recorded(merged);
  hashes.emplace_back(hash_of(adapter));
  write_file_atomic(merged / kMergeRecord, Json().set(kAdapters, std::move(hashes)).dump(2) + "\n");
}

bool warn_if_merged(const std::filesystem::path& model, const std::filesystem::path& adapter) {
  const Json::Array hashes = recorded(model);
  if (hashes.empty()) return false;
  const std::string hash = hash_of(adapter);
  const bool is_in = std::any_of(hashes.begin(), hashes.end(),
                                 [&](const Json& one) { return one.is_string() && one.string() == hash; });
  if (!is_in) return false;
  log_warning("the adapter '" + escape_control(adapter.string()) + "' was merged into '" +
              escape_control(model.string()) + "' already (" + kMergeRecord +
              "): now it counts twice; give the base without it, or no adapter");
  return true;
}

}  // namespace lorikeet::recipes
