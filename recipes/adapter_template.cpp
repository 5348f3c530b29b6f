#include "recipes/adapter_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/config.h"
#include "io/step_folder.h"
#include "recipes/best_adapter.h"
#include "text/folder_config.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kTrainedWithFile = "lorikeet_adapter.json";

bool is_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "run.json", ignored) &&
         std::filesystem::exists(folder / "config.yaml", ignored);
}

// The settings of a run in `folder`; nothing, with a warning, where they can't be read.
std::optional<config::Settings> run_settings(const std::filesystem::path& folder) {
  if (!is_run(folder)) return std::nullopt;
  try {
    return config::load_settings(folder / "config.yaml");
  } catch (const Error& error) {
    log_warning(std::string(error.what()) + "; the settings of the adapter's run aren't known");
    return std::nullopt;
  }
}

// What write_trained_with wrote; nothing, with a warning, where it can't be read.
std::optional<TrainedWith> read_trained_with(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kTrainedWithFile;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  try {
    const Json json = Json::parse(read_file(file), file.string());
    const JsonView view(json, file.string());
    TrainedWith with{.template_date = view.at("template_date").as_string()};
    if (const auto storage = view.maybe("base_storage")) {
      for (const auto quantized : {config::BaseStorage::kNF4, config::BaseStorage::kF8}) {
        if (storage->as_string() == name_of(quantized)) with.base_storage = quantized;
      }
      if (!with.base_storage) storage->fail("nf4 or fp8");
    }
    return with;
  } catch (const Error& error) {
    log_warning(std::string(error.what()) + "; how the adapter was trained isn't known");
    return std::nullopt;
  }
}

std::optional<text::TemplateSources> own_sources(const std::filesystem::path& folder) {
  try {
    auto sources = text::templates_of(text::read_folder_config(folder));
    if (sources.main) return sources;
  } catch (const Error& error) {
    log_warning(std::string(error.what()) + "; the adapter's chat template isn't known");
  }
  return std::nullopt;
}

const text::ChatTemplate* find_builtin(const std::string& name) {
  const auto& all = text::builtin_chat_templates();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& t) { return t.name == name; });
  return found == all.end() ? nullptr : &*found;
}

text::RowKind rows_of(const config::Settings& settings) {
  const config::DataFormat format = settings.data.train.format;
  return format == config::DataFormat::kChat || format == config::DataFormat::kShareGpt
             ? text::RowKind::kConversation
             : text::RowKind::kInstruction;
}

// The template of the folder's files; nullopt, with a warning, for a source that can't be read.
std::optional<text::ChosenTemplate> parsed(const text::TemplateSources& sources, const std::string& date,
                                           const std::filesystem::path& folder) {
  try {
    return text::template_of_source(sources, "a Jinja template", date);
  } catch (const Error& error) {
    log_warning("the chat template in '" + folder.string() + "' is not used: " + error.what());
    return std::nullopt;
  }
}

// A built-in that a run was trained with. Its folder has the checkpoint's own source where that writes the
// same, and in a run of before its output carried the template just the base's, whatever that writes.
text::ChosenTemplate named_template(const text::ChatTemplate& builtin,
                                    const std::optional<text::TemplateSources>& own,
                                    const config::Settings& settings, const std::filesystem::path& run) {
  const std::string& date = settings.data.template_date;
  const auto found = own ? parsed(*own, date, run) : std::nullopt;
  if (found && found->chat_template == &builtin) return *found;
  text::ChosenTemplate chosen{.chat_template = &builtin,
                              .description = builtin.name,
                              .name = builtin.name,
                              .rows = rows_of(settings)};
  if (found && text::renders_like(builtin, *own, date)) chosen.source = own->main;
  return chosen;
}

bool is_same(const text::ChosenTemplate& a, const text::ChosenTemplate& b) {
  return a.chat_template == b.chat_template && (a.chat_template != nullptr || a.source == b.source);
}

// Whether a built-in writes the same as a source in Jinja.
bool writes_as(const text::ChosenTemplate& builtin, const text::ChosenTemplate& source,
               const text::Tokenizer& tokenizer, const std::string& date) {
  if (builtin.chat_template == nullptr || !source.source) return false;
  return text::renders_like(*builtin.chat_template,
                            {.main = source.source, .tokens = tokenizer.templates().tokens}, date);
}

}  // namespace

std::filesystem::path run_of_adapter(const std::filesystem::path& adapter) {
  const auto folder = std::filesystem::absolute(adapter / "").lexically_normal().parent_path();
  std::filesystem::path above = folder.parent_path();
  if (folder.filename() == kBestFolder && is_run(above)) return above;
  if (above.filename() == io::kCheckpointsFolder && is_run(above.parent_path())) return above.parent_path();
  return adapter;
}

std::optional<std::filesystem::path> tokenizer_of_adapter(const std::filesystem::path& adapter) {
  std::filesystem::path run = run_of_adapter(adapter);
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (std::filesystem::exists(run / name, ignored)) return run;
  }
  return std::nullopt;
}

std::string_view name_of(config::BaseStorage quantized) {
  return quantized == config::BaseStorage::kNF4 ? "nf4" : "fp8";
}

std::optional<TrainedWith> trained_with(const std::filesystem::path& folder) {
  const std::filesystem::path run = run_of_adapter(folder);
  if (const auto settings = run_settings(run)) {
    TrainedWith with{.template_date = settings->data.template_date};
    const auto storage = settings->precision.base_storage;
    if (storage == config::BaseStorage::kNF4 || storage == config::BaseStorage::kF8)
      with.base_storage = storage;
    return with;
  }
  return read_trained_with(run);
}

void write_trained_with(const std::filesystem::path& folder, const TrainedWith& with) {
  Json json;
  if (with.base_storage) json.set("base_storage", std::string(name_of(*with.base_storage)));
  json.set("template_date", with.template_date);
  write_file_atomic(folder / kTrainedWithFile, json.dump(2) + "\n");
}

std::optional<AdapterTemplate> adapter_template(const std::filesystem::path& folder) {
  const std::filesystem::path run = run_of_adapter(folder);
  const auto own = own_sources(run);
  AdapterTemplate result{.folder = run};
  if (const auto settings = run_settings(run)) {
    const config::DataFormat format = settings->data.train.format;
    if (format == config::DataFormat::kText || format == config::DataFormat::kTokens) return std::nullopt;
    const std::string& setting = settings->data.chat_template;
    result.date = settings->data.template_date;
    if (const text::ChatTemplate* builtin = find_builtin(setting)) {
      result.chosen = named_template(*builtin, own, *settings, run);
      return result;
    }
    if (!own && setting != "auto") {
      log_warning("the adapter in '" + folder.string() + "' was trained with the chat template of '" +
                  setting + "', of which its folder has no copy; name it by data.chat_template");
    }
  } else if (const auto with = read_trained_with(run)) {
    result.date = with->template_date;
  }
  const auto found = own ? parsed(*own, result.date, run) : std::nullopt;
  if (!found) return std::nullopt;
  result.chosen = *found;
  return result;
}

std::optional<std::string> other_start_template(const config::Settings& settings, data::Format rows,
                                                const text::Tokenizer& tokenizer) {
  if (!settings.lora.starts_from_folder() || !data::needs_template(rows)) return std::nullopt;
  const auto trained = adapter_template(settings.lora.init);
  if (!trained) return std::nullopt;
  const config::DataSettings& data = settings.data;
  const text::ChosenTemplate& old = trained->chosen;
  const text::ChosenTemplate now = text::choose_chat_template(
      data.chat_template, tokenizer.templates(), data::has_instructions(rows), data.template_date);
  if (is_same(old, now) || writes_as(old, now, tokenizer, data.template_date) ||
      writes_as(now, old, tokenizer, data.template_date))
    return std::nullopt;
  const bool has_name = old.chat_template != nullptr;
  return "[lora.init] '" + escape_control(settings.lora.init) + "' was trained with the chat template " +
         (has_name ? old.name : "of '" + escape_control(trained->folder.string()) + "'") +
         ", and this run trains with " + now.name +
         ": the adapter has learnt another form of the questions; " +
         "data.chat_template=" + (has_name ? old.name : escape_control(trained->folder.string())) +
         " goes on with its own";
}

InferenceTemplate settle_chat_template(const config::DataSettings& data,
                                       const std::optional<std::filesystem::path>& adapter,
                                       const text::Tokenizer& tokenizer) {
  const auto trained = adapter ? adapter_template(*adapter) : std::nullopt;
  InferenceTemplate result{.setting = data.chat_template, .date = data.template_date};
  if (!trained) return result;
  if (result.date == config::DataSettings{}.template_date) result.date = trained->date;
  const text::ChosenTemplate& chosen = trained->chosen;
  const std::string from = " (" + trained->folder.string() + ")";
  result.reported = true;
  result.prompts = chosen.rows;
  if (data.chat_template == "auto") {
    log_info("chat template: " + chosen.name + ", which the adapter was trained with" + from);
    result.setting = chosen.chat_template != nullptr ? chosen.name : trained->folder.string();
    return result;
  }
  text::ChosenTemplate configured{.name = "none"};
  if (data.chat_template != "none")
    configured = text::choose_chat_template(data.chat_template, tokenizer.templates(), true, result.date);
  if (!is_same(configured, chosen)) {
    result.prompts = text::RowKind::kInstruction;
    log_warning("data.chat_template is " + configured.name + ", but the adapter was trained with " +
                chosen.name + from + ": its answers may be far worse");
  }
  log_info("chat template: " + configured.name + " (as configured)");
  return result;
}

}  // namespace lorikeet::recipes
