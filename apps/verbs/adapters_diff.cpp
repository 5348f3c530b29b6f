#include <cmath>
#include <iostream>
#include <memory>

#include "apps/table.h"
#include "apps/verbs/adapters.h"
#include "apps/verbs/home_path.h"
#include "base/strings.h"
#include "peft/adapter_measures.h"

namespace lorikeet::apps {
namespace {

// Beyond fp64's rounding of the decompositions, and below what any training step changes.
constexpr double kRounding = 1e-9;

struct Options {
  std::string a, b;
  bool json = false;
};

std::string number(double value) { return std::isnan(value) ? "-" : format_number("%.4g", value); }

Json difference_json(const peft::ModuleDifference& one) {
  Json json;
  json.set("name", one.name);
  json.set("norm_a", one.norm_a);
  json.set("norm_b", one.norm_b);
  json.set("distance", one.distance);
  json.set("relative_distance", one.relative_distance());
  json.set("cosine", one.cosine());
  json.set("equal", one.same_values);
  if (one.magnitude_distance) json.set("magnitude_distance", *one.magnitude_distance);
  return json;
}

Json names_json(const std::vector<std::string>& names) { return Json::Array(names.begin(), names.end()); }

Json report_json(const peft::AdapterDifference& difference) {
  Json::Array modules, settings;
  for (const peft::ModuleDifference& one : difference.modules) modules.push_back(difference_json(one));
  for (const peft::SettingDifference& one : difference.settings)
    settings.push_back(Json().set("key", one.key).set("a", one.a).set("b", one.b));
  Json::Array saved;
  for (const peft::ModuleDifference& one : difference.saved) saved.push_back(difference_json(one));
  Json json;
  json.set("equal", difference.equal());
  json.set("total", difference_json(difference.total));
  json.set("modules", std::move(modules));
  json.set("saved", std::move(saved));
  json.set("only_a", names_json(difference.only_a));
  json.set("only_b", names_json(difference.only_b));
  json.set("settings", std::move(settings));
  return json;
}

std::string only_text(const char* which, const std::vector<std::string>& names) {
  return names.empty() ? "" : std::string("only in ") + which + ": " + join(names, ", ") + "\n";
}

std::string modules_text(const peft::AdapterDifference& difference) {
  bool magnitudes = false;
  for (const peft::ModuleDifference& one : difference.modules)
    magnitudes = magnitudes || one.magnitude_distance.has_value();
  std::vector<std::vector<std::string>> rows = {
      {"module", "|dA|", "|dB|", "|dA - dB|", "relative", "cosine"}};
  if (magnitudes) rows[0].emplace_back("magnitudes");
  const auto add = [&](const peft::ModuleDifference& one) {
    rows.push_back({one.name, number(one.norm_a), number(one.norm_b), number(one.distance),
                    number(one.relative_distance()), number(one.cosine())});
    if (magnitudes) rows.back().push_back(one.magnitude_distance ? number(*one.magnitude_distance) : "-");
  };
  for (const peft::ModuleDifference& one : difference.modules) add(one);
  add(difference.total);
  return text_table(rows);
}

std::string saved_text(const peft::AdapterDifference& difference) {
  if (difference.saved.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"modules_to_save", "|A|", "|B|", "|A - B|", "relative"}};
  for (const peft::ModuleDifference& one : difference.saved)
    rows.push_back({one.name, number(one.norm_a), number(one.norm_b), number(one.distance),
                    number(one.relative_distance())});
  return "\nwhole copies of weights, A in the first and B in the second\n\n" + text_table(rows);
}

std::string verdict(const peft::AdapterDifference& difference) {
  if (difference.equal()) return "equal: every value and every setting\n";
  if (difference.same_values() && difference.only_a.empty() && difference.only_b.empty())
    return "every value is equal; settings differ\n";
  bool same_magnitudes = true;
  for (const peft::ModuleDifference& one : difference.saved)
    same_magnitudes = same_magnitudes && one.same_values;
  for (const auto& only : {difference.only_a, difference.only_b})
    same_magnitudes = same_magnitudes && only.empty();
  for (const peft::ModuleDifference& one : difference.modules)
    same_magnitudes = same_magnitudes && one.magnitude_distance.value_or(0) == 0;
  if (same_magnitudes && difference.total.relative_distance() <= kRounding)
    return "the same change of every weight, within fp64's rounding, by other factors\n";
  return "";
}

std::string report_text(const peft::AdapterDifference& difference) {
  std::string text = verdict(difference);
  if (!difference.total.same_values) {
    text +=
        "dA and dB are the changes scale * B A of a weight by the first and the second adapter; relative to "
        "|dA|\n\n" +
        modules_text(difference);
  }
  if (!difference.same_values()) text += saved_text(difference);
  text += only_text("the first", difference.only_a) + only_text("the second", difference.only_b);
  if (difference.settings.empty()) return text;
  std::vector<std::vector<std::string>> rows = {{"setting", "first", "second"}};
  for (const peft::SettingDifference& one : difference.settings)
    rows.push_back({one.key, one.a.dump(), one.b.dump()});
  return text + "\n" + text_table(rows, 3);
}

int diff(const Options& o) {
  const peft::AdapterDifference difference =
      peft::difference(peft::read_adapter_contents(o.a), peft::read_adapter_contents(o.b));
  std::cout << (o.json ? report_json(difference).dump(2) + "\n" : escape_control(report_text(difference)));
  return 0;
}

}  // namespace

Verb add_adapters_diff(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "diff",
      "How far two adapters' changes of each weight are apart, and which modules and settings differ.");
  command->add_option("a", o->a, "a PEFT adapter's folder")->required()->transform(home_path());
  command->add_option("b", o->b, "another one's")->required()->transform(home_path());
  command->add_flag("--json", o->json, "the result as JSON");
  return {command, [o] { return diff(*o); }};
}

}  // namespace lorikeet::apps
