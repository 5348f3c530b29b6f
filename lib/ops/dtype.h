#pragma once

#include <c10/core/ScalarType.h>

#include "base/dtype.h"

namespace lorikeet::ops {

/// libtorch's twin of a DType.
at::ScalarType to_torch(DType dtype);

/// Inverse of to_torch; throws Error for element types that Lorikeet has no use for (complex, quantised).
DType from_torch(at::ScalarType type);

}  // namespace lorikeet::ops
