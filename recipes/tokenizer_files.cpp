#include "recipes/tokenizer_files.h"

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "recipes/run_folder.h"
#include "text/folder_config.h"

namespace lorikeet::recipes {
namespace {

struct Member {
  std::string_view key;  // as written, with its quotes
  std::size_t value_begin = 0;
  std::size_t value_end = 0;
};

// Behind the string that begins at `i`.
std::size_t string_end(std::string_view json, std::size_t i) {
  for (++i; json[i] != '"'; ++i)
    if (json[i] == '\\') ++i;
  return i + 1;
}

std::size_t skip_blanks(std::string_view json, std::size_t i) { return json.find_first_not_of(" \t\r\n", i); }

// Behind the value that begins at `i`: at the blank, ',' or '}' that follows it.
std::size_t value_end(std::string_view json, std::size_t i) {
  std::size_t depth = 0;
  while (true) {
    const char c = json[i];
    if (c == '"') {
      i = string_end(json, i);
      if (depth == 0) return i;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ' ' || c == '\t' || c == '\r' || c == '\n')) return i;
    if (c == '{' || c == '[') ++depth;
    ++i;
    if ((c == '}' || c == ']') && --depth == 0) return i;
  }
}

// The members of an object, whose text must be valid JSON.
std::vector<Member> members_of(std::string_view json) {
  std::vector<Member> members;
  std::size_t i = skip_blanks(json, json.find('{') + 1);
  while (json[i] == '"') {
    const std::size_t key_end = string_end(json, i);
    Member member{.key = json.substr(i, key_end - i)};
    member.value_begin = skip_blanks(json, json.find(':', key_end) + 1);
    member.value_end = value_end(json, member.value_begin);
    members.push_back(member);
    i = skip_blanks(json, member.value_end);
    if (json[i] == ',') i = skip_blanks(json, i + 1);
  }
  return members;
}

// The text of a JSON object with one member set. All else stays byte for byte: reading and writing it again
// would change numbers such as tokenizers' model_max_length of 31 digits.
std::string with_member(const std::string& json, const std::string& key, const Json& value) {
  const std::vector<Member> members = members_of(json);
  for (const Member& member : members) {
    if (member.key == Json(key).dump())
      return json.substr(0, member.value_begin) + value.dump() + json.substr(member.value_end);
  }
  const std::size_t at = members.empty() ? json.find('{') + 1 : members.back().value_end;
  return json.substr(0, at) + (members.empty() ? "\n  " : ",\n  ") + Json(key).dump() + ": " + value.dump() +
         json.substr(at);
}

}  // namespace

std::optional<std::string> training_template(const config::Settings& settings, const data::FileReport& report,
                                             const text::Tokenizer& tokenizer) {
  if (!data::needs_template(report.rows)) return std::nullopt;
  const bool instructions = data::has_instructions(report.rows);
  const auto& checkpoint = tokenizer.chat_template();
  auto chosen = text::choose_chat_template(settings.data.chat_template, checkpoint, instructions);
  // A built-in called by its name may be the checkpoint's own, whose source can do more (tools, for example).
  if (!chosen.source && checkpoint) {
    const auto own = text::recognise_source(*checkpoint, "as the checkpoint's own");
    if (own && own->exact && own->chat_template == chosen.chat_template) chosen = *own;
  }
  return text::jinja_of(chosen, instructions ? text::RowKind::kInstruction : text::RowKind::kConversation);
}

void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kTokenizerFiles) {
    if (std::filesystem::exists(from / name)) write_file_atomic(to / name, read_file(from / name));
  }
}

void set_chat_template(const std::filesystem::path& folder, const std::string& jinja) {
  if (text::read_folder_config(folder).chat_template == jinja) return;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    const std::string text = read_file(config);
    if (!Json::parse(text, config.string()).is_object())
      throw Error("[" + config.string() + "] expected a JSON object");
    write_file_atomic(config, with_member(text, "chat_template", jinja));
  }
  write_file_atomic(folder / "chat_template.jinja", jinja);
}

}  // namespace lorikeet::recipes
