#include <iostream>
#include <memory>

#include "apps/table.h"
#include "apps/verbs/adapters.h"
#include "apps/verbs/home_path.h"
#include "base/counted.h"
#include "base/strings.h"
#include "peft/adapter_measures.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string adapter;
  bool json = false;
};

std::string number(double value) { return format_number("%.4g", value); }

std::string kind_of(const peft::LoraConfig& config) {
  return std::string(config.use_dora ? "DoRA" : "LoRA") + (config.use_rslora ? " with rsLoRA's scale" : "");
}

// How much of the squared norm of all updates is this one's.
double share(double part, double whole) { return whole > 0 ? part * part / (whole * whole) : 0; }

Json totals_json(const std::vector<peft::MeasuresTotal>& totals, double whole) {
  Json::Array array;
  for (const peft::MeasuresTotal& total : totals) {
    array.push_back(Json()
                        .set("name", total.name)
                        .set("modules", static_cast<std::int64_t>(total.modules))
                        .set("frobenius_norm", total.frobenius_norm)
                        .set("share", share(total.frobenius_norm, whole)));
  }
  return array;
}

Json module_json(const peft::ModuleMeasures& module) {
  Json json;
  json.set("name", module.name);
  json.set("in_features", module.in_features);
  json.set("out_features", module.out_features);
  json.set("rank", module.rank);
  json.set("alpha", module.alpha);
  json.set("scale", module.scale);
  json.set("norm_a", module.norm_a);
  json.set("norm_b", module.norm_b);
  json.set("frobenius_norm", module.frobenius_norm);
  json.set("spectral_norm", module.spectral_norm);
  if (module.magnitude_norm) json.set("magnitude_norm", *module.magnitude_norm);
  return json;
}

Json saved_json(const peft::AdapterContents& adapter) {
  Json::Array saved;
  for (const peft::SavedMeasures& one : peft::measure_saved(adapter)) {
    saved.push_back(Json()
                        .set("name", one.name)
                        .set("shape", Json::Array(one.shape.begin(), one.shape.end()))
                        .set("frobenius_norm", one.frobenius_norm));
  }
  return saved;
}

Json report_json(const peft::AdapterContents& adapter, const std::vector<peft::ModuleMeasures>& modules) {
  const double whole = peft::total(modules).frobenius_norm;
  Json::Array array;
  for (const peft::ModuleMeasures& module : modules) array.push_back(module_json(module));
  Json json;
  json.set("base_model", adapter.base_model);
  json.set("use_dora", adapter.config.use_dora);
  json.set("use_rslora", adapter.config.use_rslora);
  json.set("dtype", std::string(dtype_name(adapter.dtype)));
  json.set("frobenius_norm", whole);
  json.set("modules", std::move(array));
  json.set("kinds", totals_json(peft::totals_by_kind(modules), whole));
  json.set("layers", totals_json(peft::totals_by_layer(modules), whole));
  json.set("saved", saved_json(adapter));
  return json;
}

std::string totals_text(const char* heading, const std::vector<peft::MeasuresTotal>& totals, double whole) {
  std::vector<std::vector<std::string>> rows = {{heading, "modules", "|dW|", "share"}};
  for (const peft::MeasuresTotal& total : totals)
    rows.push_back({total.name, std::to_string(total.modules), number(total.frobenius_norm),
                    format_number("%.1f%%", 100 * share(total.frobenius_norm, whole))});
  return text_table(rows);
}

std::string saved_text(const peft::AdapterContents& adapter) {
  if (adapter.saved.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"modules_to_save", "shape", "|W|"}};
  for (const peft::SavedMeasures& one : peft::measure_saved(adapter)) {
    std::vector<std::string> sizes;
    for (const std::int64_t size : one.shape) sizes.push_back(std::to_string(size));
    rows.push_back({one.name, join(sizes, "x"), number(one.frobenius_norm)});
  }
  return "\n" + text_table(rows, 2) + "W is the whole trained copy, the base's weight included\n";
}

std::string report_text(const peft::AdapterContents& adapter,
                        const std::vector<peft::ModuleMeasures>& modules) {
  const double whole = peft::total(modules).frobenius_norm;
  const bool dora = adapter.config.use_dora;
  std::string text = kind_of(adapter.config) + ", " + std::string(dtype_name(adapter.dtype)) + ", " +
                     counted(modules.size(), "module") + ", for " +
                     (adapter.base_model.empty() ? "an unnamed base" : adapter.base_model) +
                     "\ndW = scale * B A, |.| its Frobenius norm, sigma its largest singular value" +
                     (dora ? "; m is DoRA's magnitude vector, whose effect only the base shows" : "") +
                     "\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"module", "weight", "rank", "alpha", "scale", "|A|", "|B|", "|dW|", "sigma"}};
  if (dora) rows[0].emplace_back("|m|");
  for (const peft::ModuleMeasures& module : modules) {
    rows.push_back(
        {module.name, std::to_string(module.out_features) + "x" + std::to_string(module.in_features),
         std::to_string(module.rank), number(module.alpha), number(module.scale), number(module.norm_a),
         number(module.norm_b), number(module.frobenius_norm), number(module.spectral_norm)});
    if (dora) rows.back().push_back(number(module.magnitude_norm.value_or(0)));
  }
  text += text_table(rows, 2) + "\n" + totals_text("kind", peft::totals_by_kind(modules), whole) + "\n";
  const auto layers = peft::totals_by_layer(modules);
  if (!layers.empty()) text += totals_text("layer", layers, whole) + "\n";
  return text + "total |dW| " + number(whole) + "\n" + saved_text(adapter);
}

int show(const Options& o) {
  const peft::AdapterContents adapter = peft::read_adapter_contents(o.adapter);
  const std::vector<peft::ModuleMeasures> modules = peft::measure(adapter);
  std::cout << (o.json ? report_json(adapter, modules).dump(2) + "\n"
                       : escape_control(report_text(adapter, modules)));
  return 0;
}

}  // namespace

Verb add_adapters_show(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "show",
      "Rank, scale and norms of each module, from what changes most down, and totals by kind and layer.");
  command->add_option("adapter", o->adapter, "a PEFT adapter's folder")->required()->transform(home_path());
  command->add_flag("--json", o->json, "the result as JSON");
  return {command, [o] { return show(*o); }};
}

}  // namespace lorikeet::apps
