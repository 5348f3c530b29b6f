#include "trace/range.h"

#include <ATen/record_function.h>
#ifdef LORIKEET_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include <cstdlib>
#include <string>
#include <unordered_map>

namespace lorikeet::trace {
namespace {

// NVTX's functions do nothing unless a tool's library is loaded, which the tool asks for by this variable.
// They are a header's, not those of libtorch's CUDA half: that one isn't loaded on a CPU.
#ifdef LORIKEET_WITH_NVTX
bool nvtx_is_read() {
  static const bool read = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  return read;
}

void nvtx_push(const std::string& text) { nvtxRangePushA(text.c_str()); }

void nvtx_pop() { nvtxRangePop(); }
#else
bool nvtx_is_read() { return false; }

void nvtx_push(const std::string&) {}

void nvtx_pop() {}
#endif

std::string nvtx_text(const char* name, std::initializer_list<Arg> args) {
  std::string text = name;
  for (const Arg& arg : args) text += std::string(" ") + arg.name + "=" + std::to_string(arg.value);
  return text;
}

}  // namespace

Range::Range(const char* name, std::initializer_list<Arg> args) {
  if (nvtx_is_read()) {
    nvtx_push(nvtx_text(name, args));
    marked_ = true;
  }
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return;
  recorded_ = std::make_unique<at::RecordFunction>(std::move(*callbacks));
  std::unordered_map<std::string, c10::IValue> figures;
  for (const Arg& arg : args) figures.emplace(arg.name, arg.value);
  recorded_->before(name, c10::ArrayRef<const c10::IValue>(), &figures);
}

Range::~Range() {
  recorded_.reset();
  if (marked_) nvtx_pop();
}

}  // namespace lorikeet::trace
