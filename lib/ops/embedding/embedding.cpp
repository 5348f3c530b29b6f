#include "ops/embedding/embedding.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/dtype.h"

namespace lorikeet::ops {

at::Tensor embedding(const at::Tensor& ids, const FrozenMatrix& table, DType out) {
  check_tensor(ids.dim() == 1 && ids.scalar_type() == at::kLong, "embedding", "an int64 vector of ids", ids);
  return table.format->lookup(table.bytes, table.cols, ids, to_torch(out));
}

}  // namespace lorikeet::ops
