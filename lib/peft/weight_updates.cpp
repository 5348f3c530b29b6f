#include "peft/weight_updates.h"

#include <ATen/ATen.h>

#include <limits>

#include "nn/reorder_rows.h"

namespace lorikeet::peft {

at::Tensor WeightUpdate::delta() const { return at::mm(b, a).mul_(scale); }

at::Tensor WeightUpdate::applied_to(const at::Tensor& weight) const {
  if (table.defined()) return table;
  at::Tensor sum = delta();
  sum.add_(weight);
  if (!magnitude.defined()) return sum;
  const std::int64_t along = magnitude_of_columns ? 0 : 1;
  const at::Tensor norms = at::norm(sum, 2, {along}).clamp_min_(std::numeric_limits<float>::min());
  return sum.mul_((magnitude / norms).unsqueeze(along));
}

std::map<std::string, WeightUpdate> weight_updates(const LoraAdapters& adapters) {
  const AdapterStore& store = adapters.store();
  // Copies: the store goes on changing.
  const auto in_module_order = [](const at::Tensor& rows, const nn::RowOrder& order) {
    return nn::to_module_order(rows.cpu(), order).clone();
  };
  std::map<std::string, WeightUpdate> updates;
  for (const auto& module : adapters.modules()) {
    const LoraAdapters::Factors factors = adapters.values(module);
    const at::Tensor a = factors.a.cpu().clone();
    std::int64_t row = 0;
    for (const nn::Module& part : module.parts) {
      WeightUpdate& update = updates[part.name + ".weight"];
      update.b = in_module_order(factors.b.narrow(0, row, part.out_features), part.order);
      row += part.out_features;
      update.a = a;
      update.scale = module.scale;
      update.magnitude_of_columns = module.is_embedding();
      if (module.magnitude)
        update.magnitude =
            in_module_order(store.value(*module.magnitude), store.segment(*module.magnitude).order);
    }
  }
  for (const auto& table : adapters.tables()) {
    const at::Tensor rows = store.value(table.segment).cpu().clone();
    for (const std::string& name : {table.name, table.tied_head}) {
      if (!name.empty()) updates[name + ".weight"].table = rows;  // one tensor for both names
    }
  }
  return updates;
}

}  // namespace lorikeet::peft
