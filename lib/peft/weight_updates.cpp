#include "peft/weight_updates.h"

#include <ATen/ATen.h>

#include "nn/reorder_rows.h"

namespace lorikeet::peft {

std::map<std::string, at::Tensor> weight_updates(const LoraAdapters& adapters) {
  const AdapterStore& store = adapters.store();
  std::map<std::string, at::Tensor> updates;
  for (const auto& module : adapters.modules()) {
    const at::Tensor a = store.value(module.a).cpu();
    const at::Tensor b = nn::to_module_order(store.value(module.b).cpu(), store.segment(module.b).order);
    updates[module.name + ".weight"] = at::mm(b, a) * adapters.config().scale();
  }
  return updates;
}

}  // namespace lorikeet::peft
