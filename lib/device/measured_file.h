#pragma once

#include <filesystem>
#include <optional>

#include "device/inventory.h"
#include "device/link_model.h"
#include "device/topology.h"

namespace lorikeet::device {

/// The file under the cache folder in which the measurements of these GPUs are kept. Its name depends on the
/// driver's version and the GPUs' UUIDs, so that another card or driver has another file. Empty where a UUID
/// isn't told, there is no GPU, or there is no cache folder.
std::optional<std::filesystem::path> measurements_file(const Inventory& inventory);

/// What the file holds for `topology`, which is of the same GPUs; nothing where there is no file, and nothing
/// with a warning where it can't be read as one.
Measurements load_measurements(const std::filesystem::path& file, const Topology& topology);

/// Writes the file, in the form of `lorikeet topo --json`; what it has of other pairs and sets stays. Throws
/// Error where it can't be written.
void save_measurements(const std::filesystem::path& file, const Topology& topology,
                       const Measurements& measured);

}  // namespace lorikeet::device
