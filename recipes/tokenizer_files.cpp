#include "recipes/tokenizer_files.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "recipes/run_folder.h"
#include "text/folder_config.h"

namespace lorikeet::recipes {

std::optional<std::string> training_template(const config::Settings& settings, const data::FileReport& report,
                                             const text::Tokenizer& tokenizer) {
  if (!data::needs_template(report.rows)) return std::nullopt;
  const bool instructions = data::has_instructions(report.rows);
  const text::TemplateSources& checkpoint = tokenizer.templates();
  auto chosen = text::choose_chat_template(settings.data.chat_template, checkpoint, instructions,
                                           settings.data.template_date);
  // A built-in called by its name may be the checkpoint's own, whose source can do more (tools, for example).
  if (!chosen.source && checkpoint.main &&
      text::renders_like(*chosen.chat_template, checkpoint, settings.data.template_date))
    chosen.source = checkpoint.main;
  return text::jinja_of(chosen, instructions ? text::RowKind::kInstruction : text::RowKind::kConversation);
}

void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kTokenizerFiles) {
    if (std::filesystem::exists(from / name)) write_file_atomic(to / name, read_file(from / name));
  }
}

void add_tokens(const std::filesystem::path& folder, const std::vector<text::AddedToken>& tokens) {
  if (tokens.empty()) return;
  const std::filesystem::path json = folder / "tokenizer.json", config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(json))
    write_file_atomic(json, text::tokenizer_json_with(read_file(json), tokens));
  const std::string settings = std::filesystem::exists(config) ? read_file(config) : "{}";
  write_file_atomic(config, text::tokenizer_config_with(settings, tokens));
}

void set_chat_template(const std::filesystem::path& folder, const std::string& jinja,
                       const std::filesystem::path& source) {
  const auto has_it = [&](const std::filesystem::path& where) {
    return text::read_folder_config(where).chat_template == jinja;
  };
  if (has_it(source) && has_it(folder)) return;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    const std::string text = read_file(config);
    if (!Json::parse(text, config.string()).is_object())
      throw Error("[" + config.string() + "] expected a JSON object");
    write_file_atomic(config, with_member(text, {"chat_template"}, jinja));
  }
  write_file_atomic(folder / "chat_template.jinja", jinja);
  // Processors of multimodal models take these before it.
  std::filesystem::remove(folder / "chat_template.json");
  const std::filesystem::path processor = folder / "processor_config.json";
  if (!std::filesystem::exists(processor)) return;
  const std::string text = read_file(processor);
  const Json* found = nullptr;
  const Json settings = Json::parse(text, processor.string());
  if (settings.is_object()) found = settings.find("chat_template");
  if (found != nullptr) write_file_atomic(processor, with_member(text, {"chat_template"}, jinja));
}

}  // namespace lorikeet::recipes
