#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::text::jinja {

enum class TokenKind : std::uint8_t {
  kData,           ///< text outside tags
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kName,
  kString,   ///< `text` is its value, escapes resolved
  kInteger,  ///< `text` without underscores
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  std::size_t offset;  ///< into the source as the lexer reads it
};

/// The source as Jinja reads it: CRLF and CR are line breaks, one final line break is dropped.
std::string normalize_source(std::string_view source);

/// The tokens of `source` (normalised), the last one kEnd. White space around tags goes by their signs and by
/// trim_blocks and lstrip_blocks, both of which transformers sets. Throws Error naming line and column.
std::vector<Token> tokenize(std::string_view source);

/// "line 3, column 7" of an offset; columns count characters from 1.
std::string place_of(std::string_view source, std::size_t offset);

/// Throws Error("[chat_template] line L, column C: problem").
[[noreturn]] void fail_at(std::string_view source, std::size_t offset, const std::string& problem);

}  // namespace lorikeet::text::jinja
