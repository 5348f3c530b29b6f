#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::device {

/// What a kind of card can do, by its vendor's data sheet or architecture paper: at most, not in use.
struct DataSheet {
  std::string_view name;  ///< as the driver gives it, without the maker's words
  double tflops;          ///< dense bf16 or fp16 products with fp32 sums, 10^12 operations a second
  double memory_mib;      ///< as the driver shows it, where ECC takes its part
  double memory_gb_per_second;
  unsigned pcie_generation;                ///< sixteen lanes
  int capability_major, capability_minor;  ///< "compute capability"
  int nvlinks = 0;  ///< to a switch that joins all of a machine, where the board always has one
};

/// Every card that is known, of those that CUDA 13 runs on. Of several variants of a model the one that is
/// meant by its bare name comes first.
const std::vector<DataSheet>& data_sheets();

/// The card of a name that its driver gives, of `memory_bytes` (0: not known). Of a model's variants the one
/// of the same form (SXM, PCIe, NVL) whose memory is nearest, since a card that is there has to be taken for
/// something. nullptr where the model isn't known: one with a further word (Laptop, SUPER, D) is another
/// model, and a MIG slice is a part of one.
const DataSheet* find_data_sheet(std::string_view driver_name, std::uint64_t memory_bytes = 0);

/// The card that a person names ("rtx 3090", "A100 40GB", "H100-PCIe"), also by a part of the name that one
/// model alone has ("4090"). Throws Error with what is known where its model isn't, where a word of the name
/// has no meaning here, and where no variant has the form or, within a tenth, the memory that it says.
const DataSheet& require_data_sheet(const std::string& wanted);

}  // namespace lorikeet::device
