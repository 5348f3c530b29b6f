#include "text/folder_config.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "text/vocabulary.h"

namespace lorikeet::text {
namespace {

constexpr std::uint64_t kConfigLimitBytes = std::uint64_t{64} << 20;

// A token's spelling: a string, or an object with "content".
std::string spelling(const JsonView& json) {
  return json.json().is_object() ? json.at("content").as_string() : json.as_string();
}

void add_special(FolderConfig& config, const std::string& token) {
  auto& all = config.special_tokens;
  if (std::find(all.begin(), all.end(), token) == all.end()) all.push_back(token);
}

void read_names(const JsonView& json, FolderConfig& config) {
  const auto read = [&](const char* key, std::optional<std::string>* into) {
    const auto member = json.maybe(key);
    if (!member) return;
    const std::string token = spelling(*member);
    add_special(config, token);
    if (into != nullptr && !*into) *into = token;
  };
  read("bos_token", &config.bos_token);
  read("eos_token", &config.eos_token);
  read("unk_token", &config.unk_token);
  for (const char* key : {"pad_token", "sep_token", "cls_token", "mask_token"}) read(key, nullptr);
  // The second name is transformers 5's; as an object it maps roles to tokens.
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto member = json.maybe(key);
    if (!member) continue;
    if (member->json().is_object()) {
      for (const auto& [role, token] : member->members()) add_special(config, spelling(token));
    } else {
      for (const JsonView& token : member->items()) add_special(config, spelling(token));
    }
  }
}

// Sets or adds.
void name_token(FolderConfig& config, const std::string& name, const std::string& token) {
  for (auto& [known, spelt] : config.token_names) {
    if (known == name) {
      spelt = token;
      return;
    }
  }
  config.token_names.emplace_back(name, token);
}

// The members that transformers makes variables of chat templates. Flags ("add_bos_token") end in "_token",
// too.
void read_variables(const JsonView& json, FolderConfig& config) {
  for (const auto& [name, value] : json.members()) {
    const bool token = value.json().is_string() || value.json().find("content") != nullptr;
    if (name.ends_with("_token") && token) name_token(config, name, spelling(value));
  }
  const auto extra = json.maybe("extra_special_tokens");
  if (!extra || !extra->json().is_object()) return;
  for (const auto& [name, token] : extra->members()) name_token(config, name, spelling(token));
}

void read_template(const JsonView& json, FolderConfig& config) {
  const auto member = json.maybe("chat_template");
  if (!member) return;
  if (member->json().is_array()) {
    for (const JsonView& item : member->items())
      config.chat_templates.emplace_back(item.at("name").as_string(), item.at("template").as_string());
  } else {
    config.chat_templates.emplace_back("default", member->as_string());
  }
  for (const auto& [name, source] : config.chat_templates)
    if (name == "default") config.chat_template = source;
}

// Files of their own are the newer place. Where there is one, transformers reads no template of
// tokenizer_config.json.
void read_template_files(const std::filesystem::path& folder, FolderConfig& config) {
  std::vector<std::pair<std::string, std::string>> found;
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path)) {
    config.chat_template = read_file(path, kConfigLimitBytes);
    found.emplace_back("default", *config.chat_template);
  }
  std::vector<std::filesystem::path> others;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", none))
    if (entry.path().extension() == ".jinja") others.push_back(entry.path());
  std::sort(others.begin(), others.end());
  for (const auto& path : others)
    found.emplace_back(path.stem().string(), read_file(path, kConfigLimitBytes));
  if (!found.empty()) config.chat_templates = std::move(found);
}

// Multimodal checkpoints may have theirs where transformers' processors alone look.
void read_processor_template(const std::filesystem::path& folder, FolderConfig& config) {
  for (const char* name : {"chat_template.json", "processor_config.json"}) {
    const std::filesystem::path path = folder / name;
    if (config.chat_template || !std::filesystem::exists(path)) continue;
    const Json json = Json::parse(read_file(path, kConfigLimitBytes), path.string());
    const auto found = JsonView(json, path.string()).maybe("chat_template");
    if (!found) continue;
    config.chat_template = found->as_string();
    config.chat_templates.emplace_back("default", *config.chat_template);
  }
}

void read_added(const JsonView& json, FolderConfig& config) {
  const auto member = json.maybe("added_tokens_decoder");
  if (!member) return;
  for (const auto& [key, value] : member->members()) {
    AddedToken token = read_added_token(value);
    const auto result = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (result.ec != std::errc{} || result.ptr != key.data() + key.size() || token.id < 0 ||
        token.id >= Vocabulary::kIdLimit) {
      throw Error("[" + member->where() + "] expected token ids as keys, got '" + escape_control(key) + "'");
    }
    config.added_tokens.push_back(std::move(token));
  }
}

// Older checkpoints: {"<token>": id}.
void read_added_tokens_json(const JsonView& json, FolderConfig& config) {
  for (const auto& [content, id] : json.members()) {
    AddedToken token;
    token.content = content;
    if (id.as_int() < 0 || id.as_int() >= Vocabulary::kIdLimit) id.fail("a token id");
    token.id = static_cast<TokenId>(id.as_int());
    const auto& specials = config.special_tokens;
    token.special = std::find(specials.begin(), specials.end(), content) != specials.end();
    config.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

TemplateSources templates_of(const FolderConfig& config) {
  TemplateSources sources{.main = config.chat_template, .tokens = config.token_names};
  for (const auto& [name, source] : config.chat_templates)
    if (name == "tool_use") sources.with_tools = source;
  return sources;
}

FolderConfig read_folder_config(const std::filesystem::path& folder) {
  FolderConfig config;
  bool newer = false;  // tokenizer_config.json has "added_tokens_decoder"
  const auto load = [&](const std::string& name) -> std::optional<Json> {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    const auto& file = config.files.emplace_back(name, read_file(path, kConfigLimitBytes));
    return Json::parse(file.second, path.string());
  };
  if (const auto json = load("tokenizer_config.json")) {
    const JsonView view(*json, (folder / "tokenizer_config.json").string());
    read_names(view, config);
    read_variables(view, config);
    read_template(view, config);
    read_added(view, config);
    newer = view.json().find("added_tokens_decoder") != nullptr;
    if (view.has("add_bos_token")) config.add_bos_token = view.at("add_bos_token").as_bool();
    if (view.has("add_eos_token")) config.add_eos_token = view.at("add_eos_token").as_bool();
    config.legacy = view.get_bool("legacy", true);
  }
  if (const auto json = load("special_tokens_map.json")) {
    const JsonView view(*json, (folder / "special_tokens_map.json").string());
    read_names(view, config);
    // As transformers reads them: the older file overrides names, but isn't read where the newer form of
    // added tokens is there.
    if (!newer) read_variables(view, config);
  }
  if (config.added_tokens.empty()) {
    if (const auto json = load("added_tokens.json")) {
      read_added_tokens_json(JsonView(*json, (folder / "added_tokens.json").string()), config);
    }
  }
  read_template_files(folder, config);
  read_processor_template(folder, config);
  return config;
}

}  // namespace lorikeet::text
