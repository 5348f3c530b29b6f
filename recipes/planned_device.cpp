#include "recipes/planned_device.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/data_sheet.h"
#include "device/link_model.h"
#include "device/memory.h"
#include "device/pcie_rate.h"
#include "device/peak_rate.h"
#include "device/selection.h"
#include "ops/attention/kernel_choice.h"
#include "ops/dtype.h"
#include "ops/experts/grouped_products.h"
#include "plan/card_time.h"
#include "recipes/cpu_rate.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"
#include "recipes/step_job.h"
#include "recipes/step_plan.h"

namespace lorikeet::recipes {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kMiB = 1048576.0;
constexpr double kGB = 1e9;
constexpr double kTera = 1e12;

// Of a CPU's rate in matrix products alone (docs/plan.md).
constexpr double kShareOfProducts = 0.6;
// NCCL's, from one GPU to the next. Assumed.
constexpr double kLatencyCuda = 10e-6;
// That a run may take of a host that isn't known. Assumed.
constexpr double kHostMemoryGib = 64;
// Of a host's memory, each way, to all its GPUs. Assumed: half of what a desktop's two channels of DDR5 have.
constexpr double kHostMemoryGb = 40;
// Gloo between processes of one machine: what copying costs the cores (benchmarks/results/links_cpu.md).
constexpr double kLatencyCpu = 50e-6;
constexpr double kSecondsPerByteCpu = 2.4e-9;
constexpr double kLoopbackBytesPerSecond = 2e9;

device::CudaDevice as_cuda_device(const device::DataSheet& sheet) {
  return {.name = std::string(sheet.name),
          .memory_bytes = static_cast<std::uint64_t>(sheet.memory_mib * kMiB),
          .capability_major = sheet.capability_major,
          .capability_minor = sheet.capability_minor};
}

// So many of a card in one machine: behind a switch where the board has one, else on PCIe, how isn't told.
device::Topology imagined(const device::DataSheet& sheet, int count) {
  device::Topology topology;
  const auto size = static_cast<std::size_t>(count);
  const bool consumer =
      sheet.name.find("RTX") != std::string_view::npos && sheet.name.find("RTX A") == std::string_view::npos;
  for (int i = 0; i < count; ++i) {
    topology.gpus.push_back({.label = "GPU" + std::to_string(i),
                             .model = (consumer ? "GeForce " : "") + std::string(sheet.name),
                             .pcie_width = 16,
                             .pcie_generation = sheet.pcie_generation,
                             .nvswitch = sheet.nvlinks > 0});
  }
  const device::Link between = sheet.nvlinks > 0
                                   ? device::Link{device::LinkKind::kNvLink, sheet.nvlinks, std::nullopt}
                                   : device::Link{device::LinkKind::kSys, 0, std::nullopt};
  topology.links.assign(size, std::vector<device::Link>(size, between));
  for (std::size_t i = 0; i < size; ++i) topology.links[i][i] = {device::LinkKind::kSelf, 0, std::nullopt};
  return topology;
}

// Notes where a figure comes from, in place of what was said of it before.
void say(PlannedDevice& out, const std::string& name, const std::string& text) {
  std::erase_if(out.sources, [&](const std::string& source) { return source.starts_with(name + ": "); });
  out.sources.push_back(name + ": " + text);
}

plan::Link link_of(double gb_per_second, double latency) { return {gb_per_second * kGB, latency}; }

void take_peak(PlannedDevice& out, const std::string& name, const DeviceRequest& request) {
  const auto peak = device::peak_flops(name, out.policy.compute, out.policy.matmul);
  out.peak_flops = peak;
  if (!peak && !request.flops_per_second) {
    throw Error("[plan] no rate is known of '" + escape_control(name) +
                "' for this precision; choose another precision.preset, or give --flops-per-second");
  }
}

void take_memory(PlannedDevice& out, std::int64_t bytes, const std::string& source) {
  out.machine.memory_bytes = bytes;
  say(out, "memory", format_bytes(static_cast<std::uint64_t>(bytes)) + " a device, " + source);
}

// The rate between so many of a card, were they in one machine; nothing is known of one without a data sheet.
plan::Link imagined_link(const device::DataSheet* sheet, int count) {
  constexpr double kUntold = 10;  // GB/s, of PCIe 4.0 x16 through main memory
  if (sheet == nullptr) return link_of(kUntold, kLatencyCuda);
  const device::Topology topology = imagined(*sheet, count);
  return link_of(device::LinkModel(topology).prior(device::all_gpus(topology)), kLatencyCuda);
}

// By the card's PCIe generation, with sixteen lanes.
void take_host_rate(PlannedDevice& out, const device::DataSheet* sheet) {
  constexpr unsigned kUntoldGeneration = 4, kLanes = 16;
  const unsigned generation = sheet != nullptr ? sheet->pcie_generation : kUntoldGeneration;
  const double gb = device::pcie_gb_per_second(generation, kLanes);
  out.machine.host_bytes_per_second = gb * kGB;
  out.machine.host_memory_bytes_per_second = kHostMemoryGb * kGB;
  say(out, "host link",
      format_number("%.3g GB/s each way, of PCIe ", gb) + std::to_string(generation) +
          ".0 x16 (docs/topology.md): " + (sheet != nullptr ? "estimated" : "assumed") +
          format_number("; all GPUs together at most %.0f GB/s, assumed", kHostMemoryGb));
}

PlannedDevice named_card(const DeviceRequest& request, const config::Settings& settings) {
  const device::DataSheet& sheet = device::require_data_sheet(*request.gpu);
  const device::CudaDevice card = as_cuda_device(sheet);
  const device::Device first{device::Device::Kind::kCuda, 0};
  PlannedDevice out{.policy = precision::resolve(settings.precision)};
  precision::require_supported(out.policy, first, {card});
  out.target = step_target(out.policy, at::kCUDA);
  out.target.capability = card.capability();
  out.machine.device = card.name;
  take_peak(out, card.name, request);
  out.machine.memory_bytes_per_second = sheet.memory_gb_per_second * kGB;
  take_memory(out, *device::available_memory(first, {card}, {}, 1),
              "94% of " + format_number("%.1f GiB", sheet.memory_mib / 1024));
  out.machine.link = [&sheet](int devices) { return imagined_link(&sheet, devices); };
  say(out, "link",
      format_number("%.3g GB/s between two, estimated from ", out.machine.link(2).bytes_per_second / kGB) +
          (sheet.nvlinks > 0 ? std::to_string(sheet.nvlinks) + " NVLinks"
                             : "PCIe " + std::to_string(sheet.pcie_generation) + ".0 x16") +
          " (docs/topology.md)");
  take_host_rate(out, &sheet);
  return out;
}

// Two of the three figures that describe a GPU would be taken for those of a CPU that nobody asked about.
void require_all_figures(const DeviceRequest& request) {
  const std::array<std::pair<const char*, bool>, 3> figures{
      {{"--device-memory", request.memory_gib.has_value()},
       {"--flops-per-second", request.flops_per_second.has_value()},
       {"--bandwidth", request.bandwidth_gb.has_value()}}};
  std::vector<std::string> given, missing;
  for (const auto& [option, is_given] : figures) (is_given ? given : missing).emplace_back(option);
  if (missing.size() != 1) return;
  throw Error("[plan] expected " + missing[0] + " beside " + join(given, " and ") +
              ": the three together describe a GPU, and here is none whose other figures could be taken; "
              "give it, or name a card with --gpu, or give one of them alone to plan for this CPU");
}

PlannedDevice told_by_figures(const DeviceRequest& request, const config::Settings& settings) {
  require_all_figures(request);
  PlannedDevice out{.policy = precision::resolve(settings.precision)};
  out.target = step_target(out.policy, at::kCUDA);
  out.machine.device = "a GPU as told";
  take_host_rate(out, nullptr);
  return out;
}

// The GPUs of the snapshot that CUDA offers and that a run on several may take.
device::GpuSet usable_gpus(const device::Snapshot& snapshot) {
  device::GpuSet usable;
  for (const device::CudaDevice& one : device::cuda_devices()) {
    const auto gpu = device::gpu_of(one, snapshot.inventory);
    if (gpu && !snapshot.inventory.gpus[*gpu].mig.value_or(false)) usable.push_back(*gpu);
  }
  std::sort(usable.begin(), usable.end());
  return usable;
}

void take_links_here(PlannedDevice& out, const device::DataSheet* sheet) {
  const device::Snapshot& snapshot = device::first_snapshot();
  const auto model = std::make_shared<device::LinkModel>(snapshot.topology, snapshot.measured);
  const device::GpuSet usable = usable_gpus(snapshot);
  const bool joined = usable.size() >= 2 && usable.size() <= device::kMostCandidates;
  out.machine.link = [model, usable, joined, sheet](int devices) {
    const auto count = static_cast<std::size_t>(devices);
    if (!joined || count < 2 || count > usable.size()) return imagined_link(sheet, devices);
    return link_of(device::best_set(*model, usable, count).figure->gb_per_second, kLatencyCuda);
  };
  const std::string more = sheet == nullptr ? "10 GB/s, assumed" : "as by its data sheet (docs/topology.md)";
  say(out, "link",
      joined ? "the best set of the cards here, as `lorikeet topo` has it; of more cards " + more : more);
}

PlannedDevice of_this_machine(const DeviceRequest& request, const config::Settings& settings) {
  const device::Device device = choose_device(settings.device);
  if (!device.is_cuda()) require_all_figures(request);
  const auto& found = device::cuda_devices();
  PlannedDevice out{.policy = choose_policy(settings.precision, device)};
  out.target = step_target(out.policy, device);
  out.machine.device = device::describe(device, found);
  if (const auto memory = available_memory(device, 1)) take_memory(out, *memory, "free now");
  if (device.is_cuda()) {
    out.machine.host_memory_bytes = available_memory(device::Device{}, 1).value_or(0);
    const device::CudaDevice& card = found.at(static_cast<std::size_t>(device.index));
    out.here = static_cast<int>(found.size());
    const device::DataSheet* sheet = device::find_data_sheet(card.name, card.memory_bytes);
    take_peak(out, sheet != nullptr ? std::string(sheet->name) : card.name, request);
    if (sheet != nullptr) out.machine.memory_bytes_per_second = sheet->memory_gb_per_second * kGB;
    take_links_here(out, sheet);
    take_host_rate(out, sheet);
    return out;
  }
  out.here = 1;
  out.machine.shared = true;
  out.machine.seconds_per_byte = kSecondsPerByteCpu;
  out.machine.link = [](int) { return plan::Link{kLoopbackBytesPerSecond, kLatencyCpu}; };
  return out;
}

// The length of each row, where all have the same; else 0.
std::int64_t common_length(const data::TokenDataset& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows.length(i) != rows.longest()) return 0;
  }
  return rows.longest();
}

// The kernels that compute the layers' attention, each with its part of the operations of all attention.
std::map<ops::AttentionKernel, double> attention_kernels(const PlannedDevice& device,
                                                         const nn::CausalLMSpec& spec,
                                                         const data::TokenDataset& rows) {
  const ops::DryTarget& target = device.target;
  const std::int64_t length = common_length(rows);
  std::map<ops::AttentionKernel, std::vector<nn::DecoderLayerSpec>> layers;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    if (!layer.attends()) continue;
    const ops::AttentionKernel kernel =
        ops::choose_attention_kernel({target.device, target.capability, ops::to_torch(device.policy.compute)},
                                     layer.attention.layout.head_dim, layer.attention.options, length);
    layers[kernel].push_back(layer);
  }
  std::map<ops::AttentionKernel, double> parts;
  for (const auto& [kernel, of_kernel] : layers) {
    const train::AttentionSquares squares(of_kernel, spec.shape);
    double& part = parts[kernel];
    for (std::size_t i = 0; i < rows.size(); ++i) part += static_cast<double>(squares.of(rows.length(i)));
  }
  return parts;
}

void take_card_rate(PlannedDevice& out, const ModelSession& session, const data::TokenDataset& rows) {
  const nn::CausalLMSpec& spec = session.model->spec();
  const std::map<ops::AttentionKernel, double> kernels = attention_kernels(out, spec, rows);
  const bool cudnn = kernels.contains(ops::AttentionKernel::kCudnn);
  const double peak = *out.peak_flops, memory = out.machine.memory_bytes_per_second;
  const plan::CardRates rates =
      plan::card_rates(peak, memory, out.target.capability, {kernels.begin(), kernels.end()});
  const plan::CardLoad load =
      plan::card_load(spec, *session.adapters, size_of_rows(session, rows), session.policy);
  out.machine.flops_per_second = load.flops() / plan::card_seconds(load, rates);
  out.machine.seconds_per_layer = plan::kCardSecondsPerLayer;
  out.machine.decoded_bytes_per_second = rates.decoding;
  const auto share = [](double part, double whole) { return format_number("%.0f%%", 100 * part / whole); };
  say(out, "rate",
      format_number("%.0f TFLOP/s with this model and these rows, of products at ",
                    out.machine.flops_per_second / kTera) +
          share(rates.products, peak) +
          format_number(" of the data sheet's %.1f, attention at ", peak / kTera) +
          share(rates.attention, peak) + (cudnn ? " (rows of one length; of several half as much)" : "") +
          ", and all else by memory at " + share(rates.memory, memory) +
          format_number(" of %.0f GB/s: shares as on an H200, assumed for other cards (docs/plan.md)",
                        memory / kGB));
}

void measure_rate(PlannedDevice& device, const nn::ModelShape& shape) {
  const double products = product_rate(shape, device.policy);
  device.machine.flops_per_second = kShareOfProducts * products;
  say(device, "rate",
      format_number("%.3f TFLOP/s, ", device.machine.flops_per_second / kTera) +
          format_number("%.0f%%", 100 * kShareOfProducts) +
          " of what products of this model's widths were just measured at" +
          format_number(" (%.3f)", products / kTera));
}

// Whether the widest products of all experts are small enough to be computed at once.
bool are_small_experts(const nn::CausalLMSpec& spec, std::int64_t tokens) {
  return std::all_of(spec.layers.begin(), spec.layers.end(), [&](const nn::DecoderLayerSpec& layer) {
    const auto& experts = layer.experts;
    return !experts ||
           ops::leaves_device_idle(tokens * experts->router.per_token, experts->count,
                                   std::max(2 * experts->intermediate_size, experts->hidden_size));
  });
}

}  // namespace

PlannedDevice planned_device(const DeviceRequest& request, const config::Settings& settings) {
  PlannedDevice out = request.gpu            ? named_card(request, settings)
                      : request.by_figures() ? told_by_figures(request, settings)
                                             : of_this_machine(request, settings);
  const std::string told = "as told";
  if (request.memory_gib) take_memory(out, static_cast<std::int64_t>(*request.memory_gib * kGiB), told);
  if (request.flops_per_second) {
    out.machine.flops_per_second = *request.flops_per_second;
    say(out, "rate", format_number("%.1f TFLOP/s, ", *request.flops_per_second / kTera) + told);
  }
  if (request.bandwidth_gb) {
    const double gb = *request.bandwidth_gb;
    out.machine.link = [gb](int) { return link_of(gb, kLatencyCuda); };
    say(out, "link", format_number("%.3g GB/s, ", gb) + told);
  }
  if (out.machine.memory_bytes == 0)
    throw Error("[plan] this machine doesn't tell its free memory; give --device-memory",
                ErrorKind::kEnvironment);
  const bool elsewhere = out.target.device == at::kCUDA && out.here == 0;
  if (request.host_memory_gib || elsewhere) {
    const double gib = request.host_memory_gib.value_or(kHostMemoryGib);
    out.machine.host_memory_bytes = static_cast<std::int64_t>(gib * kGiB);
    say(out, "host memory",
        format_number("%.3g GiB for what is offloaded, ", gib) +
            (request.host_memory_gib ? told : "assumed"));
  }
  out.machine.price_per_hour = request.price_per_hour;
  return out;
}

bool computes_experts_at_once(const precision::Policy& policy, const ops::DryTarget& target) {
  return target.device == at::kCUDA &&
         ops::has_grouped_products(target.capability, ops::to_torch(policy.compute)) &&
         policy.matmul != config::Matmul::kFp8;
}

void settle_rate(PlannedDevice& device, const ModelSession& session, const data::TokenDataset& rows) {
  if (device.target.device == at::kCUDA) {
    const precision::Policy& policy = session.policy;
    const std::int64_t tokens =
        plan::usual_micro_tokens(session.model->shape(), at::kCUDA, device.peak_flops);
    const bool at_once =
        computes_experts_at_once(policy, device.target) && are_small_experts(session.model->spec(), tokens);
    device.machine.least_seconds_per_layer =
        plan::kHostSecondsPerLayer + plan::experts_host_seconds_per_layer(session.model->spec(), at_once);
  }
  if (device.machine.flops_per_second > 0) return;
  if (device.target.device == at::kCUDA) {
    take_card_rate(device, session, rows);
  } else {
    measure_rate(device, session.model->shape());
  }
}

}  // namespace lorikeet::recipes
