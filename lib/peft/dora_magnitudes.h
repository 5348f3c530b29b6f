#pragma once

#include <optional>

#include "ops/lora/dora.h"
#include "peft/lora.h"

namespace lorikeet::peft {

/// DoRA's magnitudes of one adapter. The norms are computed once for all passes that see the same values.
class DoraMagnitudes {
 public:
  DoraMagnitudes(const LoraAdapters& adapters, LoraAdapters::Module module)
      : adapters_(adapters), module_(std::move(module)) {}

  /// `weight`: the module's rows. Nothing for an adapter without DoRA.
  std::optional<ops::DoraMagnitude> of(const ops::FrozenMatrix& weight) const;
  /// As the last of() gave it, whose values must still be the store's.
  ops::DoraMagnitude last() const;

 private:
  const LoraAdapters& adapters_;
  LoraAdapters::Module module_;
  mutable at::Tensor norms_;  // of the store's version norms_of_
  mutable std::uint64_t norms_of_ = 0;
  mutable at::Tensor squares_;  // of the frozen rows, which never change once they are used
};

}  // namespace lorikeet::peft
