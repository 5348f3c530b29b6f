#include "plan/card_time.h"

#include <algorithm>

#include "ops/capability.h"
#include "plan/micro_auto.h"

namespace lorikeet::plan {
namespace {

// Of the data sheet's product rate: 726 and 707 TFLOP/s of 989 in layers of 4,096 and 1,024 numbers, a part
// of which is kCardSecondsPerLayer's.
constexpr double kProducts = 0.74;
// Of twice that rate: 1,317 TFLOP/s in fp8.
constexpr double kFloat8 = 0.67;
// Of the data sheet's memory bandwidth: 4.27 of 4.8 TB/s, read and written by a copy.
constexpr double kMemory = 0.89;
// Of that in decoding: nf4 72%, fp8 68%.
constexpr double kDecoding = 0.7;

// Accesses to memory of a whole step, in numbers of the compute dtype, for each token. Norms, rotary,
// activations, copies: for each input and output of a layer's linear modules.
constexpr double kElementwise = 3.7;
// The adapters' products: for each input and output of a module that has one.
constexpr double kAdapter = 3.4;
// DoRA's scaling: forward reads and writes a module's output, backward reads it and its gradient and writes
// that. Counted, not measured; what reading the weights for their rows' norms takes is left out.
constexpr double kScaling = 5;
// What attention takes beside its pairs, however short the sequences: for each number of the queries.
constexpr double kAttention = 26;
// The loss: for each logit of a token with a label.
constexpr double kLoss = 6;
// Bringing activations to fp8, which happens once for all modules that read them: for each number.
constexpr double kToFloat8 = 4;

double d(std::int64_t n) { return static_cast<double>(n); }

// Numbers of a row, over all layers.
struct Widths {
  double inputs = 0;   ///< of groups of linear modules
  double modules = 0;  ///< inputs and outputs of each module
  double queries = 0;
};

Widths widths_of(const nn::CausalLMSpec& spec) {
  Widths widths;
  const auto add = [&](const std::vector<nn::Module>& group, std::int64_t inputs) {
    widths.inputs += d(inputs);
    for (const nn::Module& module : group) widths.modules += d(inputs + module.out_features);
  };
  const auto add_group = [&](const nn::GroupSpec& group) { add(group.modules, group.in_features); };
  if (spec.layer_inputs) add_group(spec.layer_inputs->projection_group());
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    if (layer.attends()) widths.queries += d(layer.attention.layout.k_begin());
    for (const nn::GroupSpec& group : layer.mixer_inputs()) add_group(group);
    add_group(layer.mixer_output());
    if (layer.layer_input) {
      add_group(layer.layer_input->gate_group());
      add_group(layer.layer_input->projection_group());
    }
    if (const auto& experts = layer.experts) {
      add({experts->router_module()}, experts->hidden_size);
      for (std::int64_t i = 0; i < experts->router.per_token; ++i) {
        add({{"", 2 * experts->intermediate_size}}, experts->hidden_size);
        add({{"", experts->hidden_size}}, experts->intermediate_size);
      }
    }
    const auto mlp = layer.dense_mlp();
    if (!mlp) continue;
    add(mlp->gate_up_modules(), mlp->hidden_size);
    add({mlp->down_module()}, mlp->intermediate_size);
  }
  return widths;
}

double attention_rate(int capability, ops::AttentionKernel kernel) {
  // cuDNN and FlashAttention 2 on Hopper are measured. FlashAttention 2 is written for Ampere's instructions,
  // with which an A100 reaches 0.6 of its rate (Dao 2023, arXiv:2307.08691); the rest is assumed.
  constexpr double kFlashHopper = 0.25, kFlashDataCenterBlackwell = 0.11, kFlash = 0.6;
  constexpr double kCudnnHopper = 0.495, kEfficient = 0.3, kBlocks = 0.1;
  switch (kernel) {
    case ops::AttentionKernel::kCudnn: return kCudnnHopper;
    case ops::AttentionKernel::kFlash:
      return ops::is_hopper(capability)              ? kFlashHopper
             : capability >= 100 && capability < 120 ? kFlashDataCenterBlackwell
                                                     : kFlash;
    case ops::AttentionKernel::kEfficient: return kEfficient;
    case ops::AttentionKernel::kCpu:
    case ops::AttentionKernel::kBlocks: break;
  }
  return kBlocks;
}

// Of the data sheet's product rate: recurrences run in fp32 outside of tensor cores, whose rate is a
// fifteenth of that on data centres' cards and half of it on others. Half of it was assumed, and that chunks
// take 1.7 times the rule's operations: a gated delta net's, where Mamba 2's take about 1.2 times.
double recurrence_rate(int capability) {
  const bool data_center = capability == 80 || ops::is_hopper(capability) || capability / 10 == 10;
  return data_center ? 0.02 : 0.15;
}

bool float8_products(const precision::Policy& policy) { return policy.matmul == config::Matmul::kFp8; }

// What attention's kernels compute by what the model has to.
double attention_filling(const nn::CausalLMSpec& spec) {
  double computed = 0, needed = 0;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    if (!layer.attends()) continue;
    computed += d(layer.attention.layout.k_begin());
    needed += train::heads_width(layer.attention);
  }
  return needed > 0 ? computed / needed : 1;
}

}  // namespace

CardLoad card_load(const nn::CausalLMSpec& spec, const peft::LoraAdapters& adapters,
                   const train::StepSize& size, const precision::Policy& policy) {
  const nn::ModelShape& shape = spec.shape;
  const double all = train::step_flops(shape, train::adapter_size(adapters, spec), size);
  CardLoad load;
  load.attention_flops = train::step_flops({.heads = shape.heads, .head_dim = shape.head_dim}, {},
                                           {.attention_squares = size.attention_squares});
  load.attention_filling = attention_filling(spec);
  if (float8_products(policy))  // forward's half of the base's
    load.float8_flops = train::step_flops({.layer_linear_parameters = shape.token_parameters(),
                                           .output_row_parameters = shape.output_row_parameters},
                                          {}, size) /
                        2;
  load.recurrence_flops = train::step_flops(
      {.state_elements = shape.state_elements, .state_space_elements = shape.state_space_elements}, {}, size);
  load.product_flops = all - load.attention_flops - load.float8_flops - load.recurrence_flops;

  const Widths widths = widths_of(spec);
  const train::TokenShares shares(spec);
  double adapted = 0, scaled = 0;
  for (const auto& module : adapters.modules()) {
    if (module.kind != peft::LoraAdapters::Kind::kLinear) continue;
    const double share = shares.of(module.parts.front().name);
    adapted += share * d(module.weight.cols + module.weight.rows);
    if (module.magnitude) scaled += share * d(module.weight.rows);
  }
  load.moved_bytes =
      d(dtype_size(policy.compute)) *
      ((kElementwise * widths.modules + kAdapter * adapted + kScaling * scaled + kAttention * widths.queries +
        (float8_products(policy) ? kToFloat8 * widths.inputs : 0)) *
           d(size.tokens) +
       kLoss * d(shape.vocab_size) * d(size.label_tokens));
  return load;
}

double decoded_bytes(const nn::CausalLMSpec& spec, double stored_bytes, const precision::Policy& policy) {
  if (!policy.quantization) return 0;
  const double both = stored_bytes + d(dtype_size(policy.compute));
  return both * d(spec.shape.layer_linear_parameters);
}

CardRates card_rates(double peak_flops, double peak_bytes_per_second, int capability,
                     ops::AttentionKernel attention) {
  return card_rates(peak_flops, peak_bytes_per_second, capability, {{attention, 1}});
}

CardRates card_rates(double peak_flops, double peak_bytes_per_second, int capability,
                     const std::vector<std::pair<ops::AttentionKernel, double>>& attention) {
  double operations = 0, time = 0;
  for (const auto& [kernel, part] : attention) {
    operations += part;
    time += part / attention_rate(capability, kernel);
  }
  return {.products = kProducts * peak_flops,
          .float8 = kFloat8 * 2 * peak_flops,
          .attention = time > 0 ? operations / time * peak_flops : peak_flops,
          .recurrence = recurrence_rate(capability) * peak_flops,
          .memory = kMemory * peak_bytes_per_second,
          .decoding = kDecoding * kMemory * peak_bytes_per_second};
}

double card_seconds(const CardLoad& load, const CardRates& rates) {
  return load.product_flops / rates.products + load.float8_flops / rates.float8 +
         load.attention_flops * load.attention_filling / rates.attention +
         load.recurrence_flops / rates.recurrence + load.moved_bytes / rates.memory;
}

double experts_host_seconds_per_layer(const nn::CausalLMSpec& spec, bool at_once) {
  constexpr double kLaunch = 10e-6, kMovingRows = 10;
  double launches = 0;
  for (const nn::DecoderLayerSpec& layer : spec.layers)
    launches += !layer.experts ? 0 : at_once ? kMovingRows : d(2 * layer.experts->count);
  return kLaunch * launches / d(std::max<std::int64_t>(std::ssize(spec.layers), 1));
}

std::int64_t usual_micro_tokens(const nn::ModelShape& shape, at::DeviceType device,
                                std::optional<double> peak_flops) {
  if (device == at::kCPU) return kUsualMicroTokensCpu;
  constexpr double kShare = 0.055;
  const double products = 4.0 * (d(shape.token_parameters()) + d(shape.hidden_size) * d(shape.vocab_size)) *
                          d(kUsualMicroTokensCuda) / kProducts;  // operations at the whole rate
  const double idle = 2 * kCardSecondsPerLayer * d(shape.layers) * peak_flops.value_or(0);
  return idle > kShare * products ? 2 * kUsualMicroTokensCuda : kUsualMicroTokensCuda;
}

}  // namespace lorikeet::plan
