#pragma once

#include <filesystem>
#include <optional>

#include "base/json.h"
#include "probe/product_rates.h"

namespace lorikeet::probe {

// What product_rates.h measures, kept from run to run in small files under the cache folder.

/// What a measurement is valid for: the CPU's model as `root`/proc/cpuinfo has it, its features, the
/// variables that keep libraries from some of them, libtorch's version, the threads of this process, and the
/// job.
Json rates_key(const ProductJob& job, const std::filesystem::path& root = "/");

/// "products/<digest of the key>.json" in the cache folder; empty where there is no cache folder.
std::optional<std::filesystem::path> rates_file(const Json& key);

/// The rates in `file`; empty where there is none, it is damaged, or it holds those of another key.
std::optional<ProductRates> load_rates(const std::filesystem::path& file, const Json& key);

/// Writes `file` atomically, and its folder where there is none. Throws Error where it can't.
void save_rates(const std::filesystem::path& file, const Json& key, const ProductRates& rates);

}  // namespace lorikeet::probe
