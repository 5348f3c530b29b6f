#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "peft/lora.h"

namespace lorikeet::peft {

/// What an adapter makes of a weight, on the CPU in the adapter's dtype, rows in module order.
struct WeightUpdate {
  at::Tensor b, a;  ///< [out, r] and [r, in]: scale * b a is added
  double scale = 0;
  at::Tensor magnitude;  ///< DoRA: the length that each row of the sum gets, [out]; else undefined
  bool magnitude_of_columns = false;  ///< the embedding's: of its columns instead, [in]
  at::Tensor table;  ///< a table trained whole takes the weight's place, with as many rows or more; the
                     ///< others are undefined then

  /// scale * b a, [out, in].
  at::Tensor delta() const;
  /// weight + delta(), each row (or column) brought to its magnitude, in the adapter's dtype; or the table.
  /// `weight`: [out, in].
  at::Tensor applied_to(const at::Tensor& weight) const;
};

/// What merging does to the checkpoint: of each adapted weight, by the weight's name there.
std::map<std::string, WeightUpdate> weight_updates(const LoraAdapters& adapters);

}  // namespace lorikeet::peft
