#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lorikeet::ops {

/// One line for error texts: type, shape and device of a tensor.
std::string describe(const at::Tensor& tensor);

/// Throws Error("[op] expected <expected>, got <got>").
[[noreturn]] void fail(const char* op, const std::string& expected, const std::string& got);

/// The same unless `holds`. `got` is a callable that makes the text: nothing is formatted on the good path.
template <typename Got>
void check(bool holds, const char* op, const char* expected, Got&& got) {
  if (!holds) fail(op, expected, got());
}

/// The same for one tensor.
inline void check_tensor(bool holds, const char* op, const char* expected, const at::Tensor& tensor) {
  if (!holds) fail(op, expected, describe(tensor));
}

}  // namespace lorikeet::ops
