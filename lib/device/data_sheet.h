#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::device {

/// What a kind of card can do, by its vendor's data sheet or architecture paper: at most, not in use.
struct DataSheet {
  std::string_view name;  ///< words of the name that the driver gives
  double tflops;          ///< dense bf16 or fp16 products with fp32 sums, 10^12 operations a second
  double memory_mib;      ///< as the driver shows it, where ECC takes its part
  double memory_gb_per_second;
  unsigned pcie_generation;                ///< sixteen lanes
  int capability_major, capability_minor;  ///< "compute capability"
  int nvlinks = 0;  ///< to a switch that joins all of a machine, where the board always has one
};

/// Every card that is known, of those that CUDA 13 runs on. An entry stands before those whose names it
/// contains.
const std::vector<DataSheet>& data_sheets();

/// The card of a device's name as its driver gives it, or as people write it ("rtx 3090"); nullptr where it
/// isn't known: a variant without an entry of its own (Laptop, SUPER, D) is another card, and a MIG slice is
/// a part of one.
const DataSheet* find_data_sheet(std::string_view device_name);

/// The same, also by a part of a name that one card alone has ("4090"); throws Error with the names that are
/// known, and the nearest of them.
const DataSheet& require_data_sheet(const std::string& device_name);

}  // namespace lorikeet::device
