#include "ops/denormals.h"

#include <ATen/Context.h>

namespace lorikeet::ops {

void flush_denormals() { at::globalContext().setFlushDenormal(true); }

}  // namespace lorikeet::ops
