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

void read_template(const JsonView& json, FolderConfig& config) {
  const auto member = json.maybe("chat_template");
  if (!member) return;
  if (!member->json().is_array()) {
    config.chat_template = member->as_string();
    return;
  }
  for (const JsonView& item : member->items()) {
    if (item.at("name").as_string() == "default") config.chat_template = item.at("template").as_string();
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

FolderConfig read_folder_config(const std::filesystem::path& folder) {
  FolderConfig config;
  const auto load = [&](const std::string& name) -> std::optional<Json> {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    const auto& file = config.files.emplace_back(name, read_file(path, kConfigLimitBytes));
    return Json::parse(file.second, path.string());
  };
  if (const auto json = load("tokenizer_config.json")) {
    const JsonView view(*json, (folder / "tokenizer_config.json").string());
    read_names(view, config);
    read_template(view, config);
    read_added(view, config);
    if (view.has("add_bos_token")) config.add_bos_token = view.at("add_bos_token").as_bool();
    if (view.has("add_eos_token")) config.add_eos_token = view.at("add_eos_token").as_bool();
    config.legacy = view.get_bool("legacy", true);
  }
  if (const auto json = load("special_tokens_map.json")) {
    read_names(JsonView(*json, (folder / "special_tokens_map.json").string()), config);
  }
  if (config.added_tokens.empty()) {
    if (const auto json = load("added_tokens.json")) {
      read_added_tokens_json(JsonView(*json, (folder / "added_tokens.json").string()), config);
    }
  }
  // A file of its own is the newer place, and wins in transformers too.
  const std::filesystem::path jinja = folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja)) config.chat_template = read_file(jinja, kConfigLimitBytes);
  return config;
}

}  // namespace lorikeet::text
