#include "ops/reference_ops.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace lorikeet::ops {
namespace {

bool read_environment() {
  const char* text = std::getenv("LORIKEET_REFERENCE_OPS");
  const std::string value = text == nullptr ? "" : text;
  if (value.empty() || value == "0") return false;
  if (value != "1")
    throw Error("[ops] expected 1 or 0 as LORIKEET_REFERENCE_OPS, got '" + value +
                "'; unset it to use kernels");
  log_warning("LORIKEET_REFERENCE_OPS=1: operators run their references, plain ATen calls, which are slow");
  return true;
}

std::atomic<bool>& choice() {
  static std::atomic<bool> on{read_environment()};
  return on;
}

}  // namespace

bool reference_ops() { return choice().load(std::memory_order_relaxed); }

void set_reference_ops(bool on) { choice().store(on); }

}  // namespace lorikeet::ops
