#include "card/graph.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "card/alias.h"
#include "card/memory.h"
#include "card/report.h"
#include "card/streams.h"
#include "ops/device_graph.h"

namespace lorikeet::card {
namespace {

constexpr c10::DispatchKey kRecorder = c10::DispatchKey::TESTING_ONLY_GenericMode;

class Graph;
thread_local Graph* recorded = nullptr;
thread_local bool replaying = false;

// Does all work when it is recorded, so that tensors have shapes, and takes it back at the recording's end.
class Graph final : public ops::DeviceGraph {
 public:
  explicit Graph(const Pool& pool) : pool_(pool) {}
  ~Graph() override {
    const Lock lock(mutex());
    for (void* data : kept_) release(data);
  }

  void begin() override {
    const Lock lock(mutex());
    if (id_of(current_stream(current_card())) == 0)
      throw std::runtime_error("CUDA error: operation not permitted on the default stream");
    if (recorded != nullptr || !work_.empty())
      throw std::runtime_error("CUDA error: a recording is under way");
    static std::uint64_t last = 0;
    if (pool_ == Pool()) pool_ = {++last, 0};
    stream_ = current_stream(current_card());
    before_ = memory_content();
    recorded = this;
    mode_ = std::make_unique<c10::impl::IncludeDispatchKeyGuard>(kRecorder);
  }

  void end() override {
    const Lock lock(mutex());
    mode_.reset();
    recorded = nullptr;
    restore_memory(std::exchange(before_, {}));
    if (invalid_)
      throw std::runtime_error("CUDA error: operation failed due to a previous error during capture");
  }
  void invalidate() { invalid_ = true; }

  void launch() override {
    const Lock lock(mutex());
    if (current_stream(current_card()) != stream_)
      count_hazard("a graph is launched on another stream than it was recorded on");
    ++report().graph_launches;
    ++report().launches;
    replaying = true;
    try {
      for (const auto& work : work_) work();
    } catch (...) {
      replaying = false;
      throw;
    }
    replaying = false;
  }

  Pool pool() const override { return pool_; }

  void keep(std::function<void()> work) { work_.push_back(std::move(work)); }
  void note_allocated(const void* data) { allocated_.insert(data); }
  bool keeps_freed(const void* data) {
    if (allocated_.erase(data) == 0) return false;
    kept_.push_back(const_cast<void*>(data));
    return true;
  }

 private:
  Pool pool_;
  StreamKey stream_ = 0;
  bool invalid_ = false;
  std::vector<char> before_;
  std::unique_ptr<c10::impl::IncludeDispatchKeyGuard> mode_;
  std::vector<std::function<void()>> work_;
  std::set<const void*> allocated_;  // in the recording, and not freed in it
  std::vector<void*> kept_;          // freed in it: launches write there
};

// The same memory, which may be freed: a graph knows addresses, it holds no tensors.
at::IValue borrow(const at::IValue& value) {
  const auto of = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cuda() ? unowned(tensor) : tensor;
  };
  if (value.isTensor()) return of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(of(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(of(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

void add_tensors(const at::IValue& value, std::vector<at::Tensor>* tensors) {
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_cuda()) tensors->push_back(tensor);
  };
  if (value.isTensor()) add(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) add(*tensor);
}

template <typename Values>
std::vector<at::Tensor> tensors_of(const Values& values) {
  std::vector<at::Tensor> tensors;
  for (const at::IValue& value : values) add_tensors(value, &tensors);
  return tensors;
}

bool writes_an_argument(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  return false;
}

bool share_all(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs) {
  for (const at::Tensor& result : results) {
    const auto same = [&](const at::Tensor& input) {
      return input.storage().data() == result.storage().data();
    };
    if (std::none_of(inputs.begin(), inputs.end(), same)) return false;
  }
  return true;
}

// An operator's call, as it is done again.
void call_again(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                const std::vector<at::Tensor>& results) {
  torch::jit::Stack stack = arguments;
  op.callBoxed(&stack);
  const std::vector<at::Tensor> made = tensors_of(stack);
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i].storage().data() == results.at(i).storage().data()) continue;
    note_access(results[i].storage().data(), /*writes=*/true, c10::toString(op.operator_name()));
    as_cpu(results[i]).copy_(as_cpu(made[i]));
  }
}

void record_operator(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kRecorder);
  const std::string& name = op.schema().name();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  torch::jit::Stack arguments(first, stack->end());
  const std::vector<at::Tensor> inputs = tensors_of(arguments);
  const bool writes = writes_an_argument(op.schema());
  for (at::IValue& argument : arguments) argument = borrow(argument);
  const std::size_t below = stack->size() - arguments.size();
  op.callBoxed(stack);
  const std::vector<at::IValue> returned(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  std::vector<at::Tensor> results = tensors_of(returned);
  if (name.starts_with("aten::empty") || name.starts_with("aten::new_empty")) return;
  if (!writes && (results.empty() || share_all(results, inputs))) return;  // views, and what the host asks
  for (at::Tensor& result : results) result = unowned(result);
  recorded->keep([op, arguments, results] { call_again(op, arguments, results); });
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_operator>());
}

}  // namespace

bool records() { return recorded != nullptr; }
bool replays() { return replaying; }

void keep_work(std::function<void()> work) { recorded->keep(std::move(work)); }

void refuse_in_recording(const char* what) {
  if (recorded == nullptr) return;
  recorded->invalidate();
  throw std::runtime_error(std::string("CUDA error: operation not permitted when stream is capturing: ") +
                           what);
}

void note_allocated(const void* data) {
  if (recorded != nullptr) recorded->note_allocated(data);
}

bool keeps_freed(const void* data) { return recorded != nullptr && recorded->keeps_freed(data); }

}  // namespace lorikeet::card

namespace lorikeet::ops {

std::unique_ptr<DeviceGraph> make_device_graph(const DeviceGraph::Pool& pool) {
  return std::make_unique<card::Graph>(pool);
}

}  // namespace lorikeet::ops
