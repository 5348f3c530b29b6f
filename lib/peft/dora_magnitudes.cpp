#include "peft/dora_magnitudes.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace lorikeet::peft {

std::optional<ops::DoraMagnitude> DoraMagnitudes::of(const ops::FrozenMatrix& weight) const {
  if (!module_.magnitude) return std::nullopt;
  const std::uint64_t version = adapters_.store().version();
  if (!norms_.defined() || norms_of_ != version) {
    if (!squares_.defined()) squares_ = adapters_.squares(module_, weight);
    norms_ = adapters_.norms(module_, weight, squares_);
    norms_of_ = version;
  }
  return last();
}

ops::DoraMagnitude DoraMagnitudes::last() const {
  if (!norms_.defined() || norms_of_ != adapters_.store().version()) {
    throw Error("[peft] expected a forward pass of '" + module_.name +
                    "' with the adapter's present values before its backward",
                ErrorKind::kRunFailed);
  }
  const AdapterStore& store = adapters_.store();
  return {store.value(*module_.magnitude), norms_, store.gradient(*module_.magnitude)};
}

}  // namespace lorikeet::peft
