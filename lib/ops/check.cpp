#include "ops/check.h"

#include <sstream>

#include "base/error.h"

namespace lorikeet::ops {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

void fail(const char* op, const std::string& expected, const std::string& got) {
  throw Error("[" + std::string(op) + "] expected " + expected + ", got " + got);
}

}  // namespace lorikeet::ops
