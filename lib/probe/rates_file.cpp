#include "probe/rates_file.h"

#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet::probe {
namespace {

constexpr int kVersion = 2;  // raise whenever the same job would be measured differently
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

// Lines of /proc/cpuinfo, of x86 and Arm, that tell one model of CPU from another.
constexpr std::array kModelLines = {"vendor_id", "cpu family",      "model",    "model name",
                                    "stepping",  "CPU implementer", "CPU part", "CPU variant"};
constexpr std::array kVariables = {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
                                   "MKL_ENABLE_INSTRUCTIONS"};

// Of the first CPU that is listed.
Json cpu_model(const std::filesystem::path& root) {
  Json model{Json::Object{}};
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !trim(line).empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name(trim(line.substr(0, colon)));
    const auto is = [&](const char* known) { return name == known; };
    if (std::any_of(kModelLines.begin(), kModelLines.end(), is))
      model.set(name, std::string(trim(line.substr(colon + 1))));
  }
  return model;
}

Json cpu_features() {
  std::vector<std::string> names;
  for (const auto& [name, value] : at::cpu::get_cpu_capabilities()) {
    if (value.isBool() && value.toBool()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  Json::Array features(names.begin(), names.end());
  return {std::move(features)};
}

Json job_json(const ProductJob& job) {
  Json::Array products;
  for (const FrozenProduct& product : job.products) {
    products.push_back(Json()
                           .set("out", product.out)
                           .set("in", product.in)
                           .set("count", product.count)
                           .set("projections", product.projections));
  }
  return Json()
      .set("dtype", c10::toString(job.dtype))
      .set("tokens", std::min(job.tokens, kMostMeasuredTokens))
      .set("rank", job.rank)
      .set("backward", job.backward)
      .set("products", std::move(products));
}

double positive(const JsonView& number) {
  if (!std::isfinite(number.as_number()) || number.as_number() <= 0) number.fail("a number above 0");
  return number.as_number();
}

}  // namespace

Json rates_key(const ProductJob& job, const std::filesystem::path& root) {
  Json variables{Json::Object{}};
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) variables.set(name, value);
  }
  return Json()
      .set("version", kVersion)
      .set("cpu", cpu_model(root))
      .set("features", cpu_features())
      .set("variables", std::move(variables))
      .set("libtorch", TORCH_VERSION)
      .set("threads", at::get_num_threads())
      .set("job", job_json(job));
}

std::optional<std::filesystem::path> rates_file(const Json& key) {
  const auto folder = cache_folder();
  if (!folder) return std::nullopt;
  return *folder / "products" / (sha256_hex(key.dump()).substr(0, 16) + ".json");
}

std::optional<ProductRates> load_rates(const std::filesystem::path& file, const Json& key) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  try {
    const Json json = Json::parse(read_file(file, kMostBytes), file.string());
    const JsonView view(json, file.string());
    if (view.at("key").json().dump() != key.dump()) return std::nullopt;
    return ProductRates{.native = positive(view.at("native_flops_per_second")),
                        .widened = positive(view.at("widened_flops_per_second")),
                        .native_over_widened = positive(view.at("native_over_widened"))};
  } catch (const Error&) {
    return std::nullopt;  // what is measured again takes its place
  }
}

void save_rates(const std::filesystem::path& file, const Json& key, const ProductRates& rates) {
  std::error_code ignored;  // writing says what is wrong
  std::filesystem::create_directories(file.parent_path(), ignored);
  const Json json = Json()
                        .set("key", key)
                        .set("native_flops_per_second", rates.native)
                        .set("widened_flops_per_second", rates.widened)
                        .set("native_over_widened", rates.native_over_widened);
  write_file_atomic(file, json.dump(2) + "\n");
}

}  // namespace lorikeet::probe
