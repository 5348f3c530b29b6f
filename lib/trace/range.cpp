#include "trace/range.h"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdlib>
#include <string>
#include <unordered_map>

namespace lorikeet::trace {
namespace {

// NVTX's functions do nothing unless a tool's library is loaded, which the tool asks for by this variable.
// libtorch's CUDA half has them; without it `enabled` is false.
bool nvtx_is_read() {
  static const bool read =
      std::getenv("NVTX_INJECTION64_PATH") != nullptr && torch::profiler::impl::cudaStubs()->enabled();
  return read;
}

std::string nvtx_text(const char* name, std::initializer_list<Arg> args) {
  std::string text = name;
  for (const Arg& arg : args) text += std::string(" ") + arg.name + "=" + std::to_string(arg.value);
  return text;
}

}  // namespace

Range::Range(const char* name, std::initializer_list<Arg> args) {
  if (nvtx_is_read()) {
    torch::profiler::impl::cudaStubs()->rangePush(nvtx_text(name, args).c_str());
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
  if (marked_) torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace lorikeet::trace
