#pragma once

#include "ops/reference_ops.h"

namespace lorikeet::test {

/// While one lives, operators run their references.
struct ReferenceOps {
  ReferenceOps() { ops::set_reference_ops(true); }
  ~ReferenceOps() { ops::set_reference_ops(false); }
  ReferenceOps(const ReferenceOps&) = delete;
  ReferenceOps& operator=(const ReferenceOps&) = delete;
};

}  // namespace lorikeet::test
