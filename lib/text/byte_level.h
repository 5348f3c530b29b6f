#pragma once

#include <optional>
#include <string>
#include <string_view>

// GPT-2's byte-level alphabet (openai/gpt-2, encoder.py, bytes_to_unicode): every byte has a printable
// character, so that any text can be spelt in a vocabulary of visible strings.
namespace lorikeet::text {

/// GPT-2's split pattern, which `use_regex` of ByteLevel stands for.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The character of a byte: U+0021 to U+0143.
char32_t byte_to_char(unsigned char byte);

/// `bytes`, each as its character, in UTF-8.
std::string bytes_to_chars(std::string_view bytes);

/// The bytes that `text` spells; nullopt if a character of it is not of the alphabet.
std::optional<std::string> chars_to_bytes(std::string_view text);

}  // namespace lorikeet::text
