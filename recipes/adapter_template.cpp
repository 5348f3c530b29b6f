#include "recipes/adapter_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "recipes/best_adapter.h"
#include "text/folder_config.h"

namespace lorikeet::recipes {
namespace {

bool is_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "run.json", ignored) &&
         std::filesystem::exists(folder / "config.yaml", ignored);
}

std::optional<std::string> own_source(const std::filesystem::path& folder) {
  try {
    return text::read_folder_config(folder).chat_template;
  } catch (const Error& error) {
    log_warning(std::string(error.what()) + "; the adapter's chat template isn't known");
    return std::nullopt;
  }
}

std::optional<config::Settings> run_settings(const std::filesystem::path& folder) {
  if (!is_run(folder)) return std::nullopt;
  try {
    return config::load_settings(folder / "config.yaml");
  } catch (const Error& error) {
    log_warning(std::string(error.what()) + "; the settings of the adapter's run aren't known");
    return std::nullopt;
  }
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

// The name of what `setting` stands for.
std::string name_of(const std::string& setting, const text::Tokenizer& tokenizer) {
  if (setting == "none") return setting;
  return text::choose_chat_template(setting, tokenizer.chat_template(), true).chat_template->name;
}

}  // namespace

std::filesystem::path run_of_adapter(const std::filesystem::path& adapter) {
  const auto folder = std::filesystem::absolute(adapter / "").lexically_normal().parent_path();
  std::filesystem::path above = folder.parent_path();
  if (folder.filename() == kBestFolder && is_run(above)) return above;
  if (above.filename() == "checkpoints" && is_run(above.parent_path())) return above.parent_path();
  return adapter;
}

std::optional<AdapterTemplate> adapter_template(const std::filesystem::path& folder) {
  const std::filesystem::path run = run_of_adapter(folder);
  const auto source = own_source(run);
  const auto known = source ? text::recognise_source(*source, "in '" + run.string() + "'") : std::nullopt;
  if (const auto settings = run_settings(run)) {
    const config::DataFormat format = settings->data.train.format;
    if (format == config::DataFormat::kText || format == config::DataFormat::kTokens) return std::nullopt;
    const std::string& setting = settings->data.chat_template;
    const text::ChatTemplate* builtin = find_builtin(setting);
    // A run of before its output carried the template: the tokenizer's files are just the base's.
    if (builtin != nullptr && (!known || known->chat_template != builtin))
      return AdapterTemplate{{builtin, setting, std::nullopt, rows_of(*settings)}, run};
    if (!known && builtin == nullptr && setting != "auto") {
      log_warning("the adapter in '" + folder.string() + "' was trained with the chat template of '" +
                  setting + "', of which its folder has no copy; name it by data.chat_template");
    }
  } else if (source && !known) {
    log_warning("the adapter's folder '" + folder.string() +
                "' has a chat template that isn't known here; the base's is used");
  }
  if (!known) return std::nullopt;
  return AdapterTemplate{*known, run};
}

InferenceTemplate settle_chat_template(const std::string& setting,
                                       const std::optional<std::filesystem::path>& adapter,
                                       const text::Tokenizer& tokenizer) {
  const auto trained = adapter ? adapter_template(*adapter) : std::nullopt;
  if (!trained) return {.setting = setting};
  const std::string& name = trained->chosen.chat_template->name;
  if (setting == "auto") {
    log_info("chat template: " + name + ", which the adapter was trained with (" + trained->folder.string() +
             ")");
    return {.setting = name, .prompts = trained->chosen.rows, .reported = true};
  }
  const std::string configured = name_of(setting, tokenizer);
  if (configured != name) {
    log_warning("data.chat_template is " + configured + ", but the adapter was trained with " + name + " (" +
                trained->folder.string() + "): its answers may be far worse");
  }
  log_info("chat template: " + configured + " (as configured)");
  return {.setting = setting,
          .prompts = configured == name ? trained->chosen.rows : text::RowKind::kInstruction,
          .reported = true};
}

}  // namespace lorikeet::recipes
