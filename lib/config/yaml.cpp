#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::config {
namespace {

std::string line_at(std::string_view text, const YAML::Mark& mark) {
  const std::vector<std::string> lines = split(text, '\n');
  const auto at = static_cast<std::size_t>(mark.line);
  return mark.is_null() || at >= lines.size() ? "" : lines[at];
}

// Builds the tree from yaml-cpp's events with a stack on the heap. yaml-cpp itself recurses once a level, and
// the event that opens a level comes before it does: the depth limit here therefore bounds its stack too.
class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, std::string name, const YamlLimits& limits)
      : text_(text), name_(std::move(name)), limits_(limits), last_place_(name_ + ":1") {}

  YamlNode take() { return std::move(root_); }

  // Where the last key or value that was read begins.
  const std::string& last_place() const { return last_place_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      fail(mark, line_at(text_, mark).starts_with("---")
                     ? "expected one YAML document, got a second after '---'"
                     : "expected one YAML value, got more after its end; a list stands in brackets, [a, b]");
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { add(make(mark)); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    fail(mark, "aliases (*name) are not accepted; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    check_tag(mark, tag);
    YamlNode node = make(mark);
    const bool null = tag == "?" && (value.empty() || value == "~" || value == "null");
    node.kind = null ? YamlNode::Kind::kNull : YamlNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    check_tag(mark, tag);
    open(mark, YamlNode::Kind::kSequence);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    check_tag(mark, tag);
    open(mark, YamlNode::Kind::kMapping);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;  // of a mapping: the next event is the key's value
    std::string key;
    std::string key_place;
  };

  std::string place(const YAML::Mark& mark) const { return name_ + ":" + std::to_string(mark.line + 1); }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    throw Error("[config] " + place(mark) + ": " + message);
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(mark, "tags ('" + escape_control(tag) + "') are not accepted");
  }

  YamlNode make(const YAML::Mark& mark) {
    if (++nodes_ > limits_.max_nodes)
      fail(mark, "more than " + std::to_string(limits_.max_nodes) + " values in one file");
    YamlNode node;
    node.place = last_place_ = place(mark);
    return node;
  }

  void open(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (stack_.size() >= limits_.max_depth)
      fail(mark, "nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    if (!stack_.empty() && stack_.back().node.is_mapping() && !stack_.back().has_key)
      fail(mark, "a key has to be a plain name, not a list or a mapping (is a bracket left open?)");
    YamlNode node = make(mark);
    node.kind = kind;
    stack_.push_back({std::move(node), false, {}, {}});
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.is_mapping()) {
      if (!frame.has_key) return take_key(frame, node);
      node.key = std::move(frame.key);
      node.place = std::move(frame.key_place);
      frame.has_key = false;
    }
    frame.node.items.push_back(std::move(node));
  }

  static void take_key(Frame& frame, YamlNode& node) {
    if (const YamlNode* first = frame.node.find(node.text)) {
      throw Error("[config] " + node.place + ": the key '" + escape_control(node.text) +
                  "' stands twice (first at " + first->place + "); remove one");
    }
    frame.has_key = true;
    frame.key = std::move(node.text);
    frame.key_place = std::move(node.place);
  }

  const std::string_view text_;
  const std::string name_;
  const YamlLimits& limits_;
  std::string last_place_;
  bool has_document_ = false;
  YamlNode root_;
  std::vector<Frame> stack_;
  std::size_t nodes_ = 0;
};

// yaml-cpp guesses UTF-16 and UTF-32 from the first bytes; a NUL or an invalid sequence gives those away.
void check_characters(std::string_view text, const std::string& name) {
  std::size_t bad = find_invalid_utf8(text);
  bad = std::min(bad, text.find('\0'));
  if (bad == std::string_view::npos) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
  throw Error("[config] " + name + ":" + std::to_string(line) +
              ": expected UTF-8 text, got another byte; save the file as UTF-8");
}

// Whether white space before the first word of the line holds a tab.
bool is_indented_by_tab(std::string_view text, const YAML::Mark& mark) {
  const std::string line = line_at(text, mark);
  return line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

// yaml-cpp takes the end of the text for a quote's end where only white space stands before it on its line;
// with a comment there it reports that the quote isn't closed.
std::string with_comment_at_end(std::string_view text) {
  const std::string_view full = text.substr(0, text.find_last_not_of(" \t") + 1);
  const bool ends_line = full.ends_with('\n') || full.ends_with('\r');
  return ends_line ? std::string(full) + "#" : std::string(text);
}

// True for what a YAML reader could take for another kind of value than a string.
bool looks_typed(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kWords{"null", "true", "false", "yes",
                                                          "no",   "on",   "off",   "nan"};
  const std::string lower = ascii_lower(text);
  if (std::find(kWords.begin(), kWords.end(), lower) != kWords.end()) return true;
  const char first = text.front();
  return (first >= '0' && first <= '9') || first == '.' || first == '+' || first == '-';
}

bool plain_is_safe(std::string_view text) {
  if (text.empty() || looks_typed(text) || text.front() == '@') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/' || c == '+' || c == '@' ||
           c >= 0x80;
  });
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view name) const {
  for (const YamlNode& item : items) {
    if (item.key == name) return &item;
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view name) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->find(name));
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kSequence: return "a list";
    case Kind::kMapping: return "a mapping";
    case Kind::kScalar: break;
  }
  static constexpr std::size_t kShown = 80;
  const std::string shown = text.size() <= kShown ? text : text.substr(0, kShown) + "...";
  return (quoted ? "the text '" : "'") + escape_control(shown) + "'";
}

YamlNode parse_yaml(std::string_view text, const std::string& name, const YamlLimits& limits) {
  if (text.size() > limits.max_bytes) {
    throw Error("[config] " + name + ": a file of " + std::to_string(text.size()) + " bytes, at most " +
                std::to_string(limits.max_bytes) + " are accepted");
  }
  check_characters(text, name);
  std::istringstream stream(with_comment_at_end(text));
  Builder builder(text, name, limits);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    YamlNode root = builder.take();
    parser.HandleNextDocument(builder);  // throws where there is a second one
    return root;
  } catch (const YAML::Exception& error) {
    if (error.msg == YAML::ErrorMsg::EOF_IN_SCALAR) {
      throw Error("[config] " + builder.last_place() +
                  ": a quote that opens on this line or a later one is never closed");
    }
    const std::string line = error.mark.is_null() ? "" : ":" + std::to_string(error.mark.line + 1);
    throw Error("[config] " + name + line + ": not valid YAML: " + escape_control(error.msg) +
                (is_indented_by_tab(text, error.mark) ? "; YAML indents by spaces, and here is a tab" : ""));
  }
}

std::string quote_yaml(std::string_view text) {
  if (plain_is_safe(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      std::array<char, 8> buffer{};
      std::snprintf(buffer.data(), buffer.size(), "\\x%02x", byte);
      out += buffer.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace lorikeet::config
