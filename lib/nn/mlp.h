#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "ops/activation/activation.h"

namespace lorikeet::nn {

struct MlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

struct MlpSpec {
  std::string prefix;  ///< "model.layers.0.mlp"
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  ops::Activation activation = ops::Activation::kSilu;
  bool bias = false;
  MlpNames names;
  std::optional<FusedModule> fused_gate_up;  ///< absent: gate and up are modules of their own
  bool gated = true;                         ///< else there is no gate: down(act(up x))

  /// The modules that make [gate | up], or up alone.
  std::vector<Module> gate_up_modules() const;
  Module down_module() const;
};

/// What an MLP keeps for its backward: the activated product is computed again, and `up` with `up_linear`
/// where they were given up.
struct MlpKept {
  at::Tensor up;  ///< [T, gate | up], or [T, up]
  LinearKept up_linear, down_linear;
};

/// Feed-forward block: down(act(gate x) * up x), or down(act(up x)).
class Mlp {
 public:
  Mlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit);

  /// x [T, D] -> [T, D]. `kept`, unless it is null, gets what backward needs beside x.
  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     MlpKept* kept) const;
  /// As LinearGroup::backward, for the whole block; gives back what was kept on the way. `input` may be
  /// called twice.
  at::Tensor backward(const at::Tensor& dy, const InputAgain& input, const UnitLoan& weights,
                      const ForwardContext& context, MlpKept& kept, bool input_gradient) const;
  bool learns() const { return up_->learns() || down_->learns(); }

 private:
  at::Tensor activated(const at::Tensor& up) const;

  bool gated_;
  ops::Activation activation_;
  std::unique_ptr<LinearGroup> up_;
  std::unique_ptr<LinearGroup> down_;
};

}  // namespace lorikeet::nn
