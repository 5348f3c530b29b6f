// Every operator without a kernel of its own runs libtorch's CPU kernel on aliases of the card's memory,
// after the checks that a card's kernel makes.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "card/alias.h"
#include "card/report.h"
#include "card/streams.h"
#include "card/traffic.h"
#include "card/wrong_operator.h"

namespace lorikeet::card {
namespace {

// The size or value of their result depends on data: on a card the host waits for it.
const std::set<std::string> kWaiting = {
    "aten::nonzero",    "aten::masked_select",      "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave",
    "aten::equal",      "aten::is_nonzero",         "aten::bincount",
    "aten::histc"};
// Products, which libtorch's CPU kernels do in 16 bits at a hundredth of fp32's rate where the CPU has no
// instructions for it. cuBLAS sums in fp32 and rounds once, as these do in fp32.
const std::set<std::string> kProducts = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};
// They take indices on the host, and copy them at every call.
const std::set<std::string> kTakesHostIndices = {"aten::index", "aten::_index_put_impl_", "aten::index_put_"};

void spoil_first_element(at::Tensor tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || !tensor.is_floating_point()) return;
  while (tensor.dim() > 0) tensor = tensor.select(0, 0);
  tensor.add_(1);
}

struct Input {
  at::Tensor tensor;  // as it came
  at::Tensor alias;
  bool written = false;
  std::size_t argument = 0;
};

class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op), schema_(op.schema()), stack_(*stack), first_(stack->size() - schema_.arguments().size()) {}

  void run() {
    count_operator(c10::toString(op_.operator_name()));
    const LaunchTraffic traffic(c10::toString(op_.operator_name()));
    if (kWaiting.contains(schema_.name())) count_wait(schema_.name());
    int card = factory_card();
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) substitute(i);
    for (const Input& input : inputs_) check(input, &card);
    // libtorch's own kernels set the current device and put it back.
    const OnCard on(card);
    const std::vector<at::Tensor> same = returned_arguments();
    compute();
    if (computes_wrong(schema_.name())) {
      for (std::size_t r = stack_.size() - same.size(); r < stack_.size(); ++r) {
        if (stack_[r].isTensor()) spoil_first_element(stack_[r].toTensor());
      }
    }
    for (const Input& input : inputs_) {
      if (input.written && input.tensor.is_cuda()) take_result(input.tensor, input.alias);
    }
    return_to_card(same);
  }

 private:
  // The card that a device argument names, which becomes the CPU for the kernel; -1 without one.
  int factory_card() {
    int card = -1;
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      if (!stack_[i].isDevice() || !stack_[i].toDevice().is_cuda()) continue;
      card = stack_[i].toDevice().has_index() ? stack_[i].toDevice().index() : current_card();
      stack_[i] = at::Device(at::kCPU);
    }
    return card;
  }

  void substitute(std::size_t argument) {
    at::IValue& value = stack_[first_ + argument];
    const auto* alias_info = schema_.arguments()[argument].alias_info();
    const bool written = alias_info != nullptr && alias_info->isWrite();
    const auto alias_of = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      inputs_.push_back(
          {.tensor = tensor, .alias = as_cpu(tensor), .written = written, .argument = argument});
      return inputs_.back().alias;
    };
    if (value.isTensor()) {
      value = alias_of(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(alias_of(tensor));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(alias_of(*tensor)) : std::nullopt);
      }
      value = list;
    }
  }

  void check(const Input& input, int* card) const {
    const at::Tensor& tensor = input.tensor;
    const std::string& name = schema_.name();
    if (tensor.is_cuda()) {
      const int own = static_cast<int>(tensor.device().index());
      TORCH_CHECK(*card == -1 || *card == own, "fake card: ", name,
                  ": expected all tensors on one card, got cuda:", *card, " and cuda:", own);
      *card = own;
      note_access(tensor.storage().data(), input.written, name);
      return;
    }
    TORCH_CHECK(!input.written, "fake card: ", name, ": would write a CPU tensor from CUDA ones");
    if (tensor.dim() == 0) return;  // a number, which travels with the launch
    TORCH_CHECK(kTakesHostIndices.contains(name), "fake card: ", name,
                ": expected all tensors on one device, got a CPU tensor of sizes ", tensor.sizes(),
                " among CUDA ones");
    count_hazard(name + ": indices on the host are copied to the card at every call");
  }

  void compute() {
    const auto call = [&] { op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_); };
    if (!kProducts.contains(schema_.name())) return call();
    const at::ScalarType dtype = inputs_.front().alias.scalar_type();
    if (!at::isReducedFloatingType(dtype)) return call();
    const Input* out = nullptr;
    for (const Input& input : inputs_) {
      TORCH_CHECK(input.alias.scalar_type() == dtype, "fake card: ", schema_.name(),
                  ": expected one dtype, got ", dtype, " and ", input.alias.scalar_type());
      at::IValue& value = stack_[first_ + input.argument];
      if (input.written) {
        // Not read here either: its bytes may be counted.
        out = &input;
        value = at::empty(input.alias.sizes(), input.alias.options().dtype(at::kFloat));
      } else {
        value = input.alias.to(at::kFloat);
      }
    }
    call();
    const at::Tensor result = stack_.back().toTensor();
    stack_.back() = out == nullptr ? result.to(dtype) : out->alias.resize_(result.sizes()).copy_(result);
  }

  // For each result the argument that it is (of operators in place or with an out argument), or nothing.
  std::vector<at::Tensor> returned_arguments() const {
    std::vector<at::Tensor> same(schema_.returns().size());
    for (std::size_t r = 0; r < same.size(); ++r) {
      const auto* result = schema_.returns()[r].alias_info();
      if (result == nullptr || !result->isWrite()) continue;
      for (const Input& input : inputs_) {
        const auto* from = schema_.arguments()[input.argument].alias_info();
        if (from != nullptr && *from == *result) same[r] = input.tensor;
      }
    }
    return same;
  }

  void return_to_card(const std::vector<at::Tensor>& same) {
    std::vector<at::Tensor> tensors;
    for (const Input& input : inputs_) tensors.push_back(input.tensor);
    const std::size_t first_result = stack_.size() - same.size();
    for (std::size_t r = 0; r < same.size(); ++r) {
      at::IValue& value = stack_[first_result + r];
      if (value.isTensor()) {
        value = same[r].defined() ? same[r] : from_cpu(value.toTensor(), tensors);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(from_cpu(tensor, tensors));
        value = list;
      }
    }
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  std::size_t first_;
  std::vector<Input> inputs_;
};

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Lock lock(mutex());
  Call(op, stack).run();
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace
}  // namespace lorikeet::card
