#include "base/json_text.h"

#include <span>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet {
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

// `change` makes the new text of the value of `key`, from the old one or from "" where it is absent.
template <typename F>
std::string with_value(const std::string& json, const std::string& key, F change) {
  const std::vector<Member> members = members_of(json);
  const std::string quoted = Json(key).dump();
  for (const Member& member : members) {
    if (member.key != quoted) continue;
    const std::string before = json.substr(member.value_begin, member.value_end - member.value_begin);
    return json.substr(0, member.value_begin) + change(before) + json.substr(member.value_end);
  }
  const std::size_t at = members.empty() ? json.find('{') + 1 : members.back().value_end;
  return json.substr(0, at) + (members.empty() ? "\n  " : ",\n  ") + quoted + ": " + change("") +
         json.substr(at);
}

std::string set_at(const std::string& json, std::span<const std::string> path, const Json& value) {
  if (json.empty() || json[json.find_first_not_of(" \t\r\n")] != '{')
    throw Error("expected a JSON object, got " + escape_control(json.substr(0, 40)));
  return with_value(json, path[0], [&](const std::string& before) {
    if (path.size() == 1) return value.dump();
    return set_at(before.empty() || before == "null" ? "{}" : before, path.subspan(1), value);
  });
}

}  // namespace

std::string with_member(const std::string& json, const std::vector<std::string>& path, const Json& value) {
  return set_at(json, path, value);
}

std::string without_member(const std::string& json, const std::string& key) {
  const std::vector<Member> members = members_of(json);
  const std::string quoted = Json(key).dump();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].key != quoted) continue;
    const auto begin_of = [&](const Member& member) {
      return static_cast<std::size_t>(member.key.data() - json.data());
    };
    // With the comma behind it, or the last member with the one before it.
    const bool last = i + 1 == members.size();
    const std::size_t from = last && i > 0 ? members[i - 1].value_end : begin_of(members[i]);
    const std::size_t to = last ? members[i].value_end : begin_of(members[i + 1]);
    return json.substr(0, from) + json.substr(to);
  }
  return json;
}

std::string with_items(const std::string& json, const std::string& key, const std::vector<Json>& items) {
  return with_value(json, key, [&](const std::string& before) {
    std::vector<std::string> texts;
    texts.reserve(items.size());
    for (const Json& item : items) texts.push_back(item.dump());
    const std::string added = join(texts, ", ");
    if (before.empty() || before == "null") return "[" + added + "]";
    const std::size_t last = before.find_last_not_of(" \t\r\n", before.size() - 2);
    return before.substr(0, last + 1) + (before[last] == '[' || items.empty() ? "" : ", ") + added + "]";
  });
}

}  // namespace lorikeet
