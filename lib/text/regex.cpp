#include "text/regex.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/strings.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace lorikeet::text {
namespace {

// Backtracking steps of one match attempt; ordinary split patterns use a handful.
constexpr std::uint32_t kMatchLimit = 1'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMax = std::size_t{1} << 20;

// What matching writes to, once a thread.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);

  Scratch() {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {
  // A pattern from a file must not be able to turn off the checks with "(*NO_JIT)" and its like.
  if (pattern.substr(0, 2) == "(*") {
    throw Error("[" + where + "] the pattern '" + escape_control(pattern) + "' starts with an option, '(*'");
  }
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                            &offset, context.get()));
  if (!code_) {
    throw Error("[" + where + "] the pattern '" + escape_control(pattern) + "' doesn't compile at byte " +
                std::to_string(offset) + ": " + message_of(error));
  }
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex Regex::from_oniguruma(std::string_view pattern, const std::string& where) {
  return Regex(oniguruma_to_pcre2(pattern, where), where);
}

std::optional<Regex::Match> Regex::search(std::string_view text, std::size_t from) const {
  thread_local const Scratch scratch;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = PCRE2_ERROR_JIT_BADOPTION;
  if (jit_) {
    rc = pcre2_jit_match(code_.get(), subject, text.size(), from, 0, scratch.data, scratch.context);
  }
  if (rc == PCRE2_ERROR_JIT_BADOPTION || rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, scratch.data,
                     scratch.context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0) {
    throw Error("[" + where_ + "] the pattern '" + escape_control(pattern_) + "' runs away on a text of " +
                std::to_string(text.size()) + " bytes: " + message_of(rc));
  }
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.data);
  // \K in a lookahead can put the start behind the end.
  return Match{std::min(span[0], span[1]), span[1]};
}

bool has_regex_syntax(std::string_view text) {
  return text.find_first_of("*+?()[]{}|^$\\") != std::string_view::npos;
}

std::size_t Regex::next_character(std::string_view text, std::size_t at) {
  return at >= text.size() ? at + 1 : at + utf8_length(text[at]);
}

}  // namespace lorikeet::text
