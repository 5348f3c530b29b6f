#pragma once

#include <functional>
#include <optional>
#include <string>

// Files of adapters on parameters that hold the matrices of all experts of a layer, as PEFT 0.21 writes those
// of target_parameters (its ParamWrapper). Each parameter has one lora_A [experts * rank, in], an expert's
// rows after each other, and one lora_B [out, rank * experts], whose columns have all experts' of the first
// rank, then of the second. "in" and "out" are a matrix's own, however the parameter holds it.
namespace lorikeet::peft {

/// True of the parameters of an experts' module that may get an adapter, by their names: gate_up_proj,
/// down_proj.
bool is_expert_parameter(const std::string& parameter);

/// "mlp.experts.gate_up_proj" of "model.layers.0.mlp.experts.gate_up_proj"; the name itself where it has no
/// layer.
std::string within_layer(const std::string& parameter);

/// What stands before ".lora_A.weight" in the names of an adapter's tensors on `parameter`,
/// "model.layers.0.mlp.experts.gate_up_proj": the wrapper of the module, which is the base of another one,
/// "model.layers.0.mlp.experts.base_layer", where both of its parameters are adapted. `adapted` says which
/// are.
std::string wrapper_name(const std::string& parameter,
                         const std::function<bool(const std::string& parameter)>& adapted);

/// The parameter of a module `experts` with that wrapper; nothing where there is none.
std::optional<std::string> wrapped_parameter(
    const std::string& wrapper, const std::function<bool(const std::string& parameter)>& adapted);

}  // namespace lorikeet::peft
