#include "ops/embedding/embedding.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/check.h"
#include "ops/dtype.h"

namespace lorikeet::ops {

at::Tensor embedding(const at::Tensor& ids, const FrozenWeight& table, DType out) {
  check_tensor(ids.dim() == 1 && ids.scalar_type() == at::kLong, "embedding", "an int64 vector of ids", ids);
  const at::NoGradGuard no_grad;
  const auto lease = table.lease();
  return lease.tensor().index_select(0, ids).to(to_torch(out));
}

}  // namespace lorikeet::ops
