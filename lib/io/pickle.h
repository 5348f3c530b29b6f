#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::io {

/// A value in a pickle. Copies share what is inside, which belongs to the pickle; it may hold itself.
struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,     ///< `integer`
    kInteger,  ///< `integer`
    kFloat,    ///< `number`
    kText,     ///< `text`
    kTuple,    ///< `items`; lists too
    kDict,     ///< `items`: key, value, key, value, ...
    kGlobal,   ///< `text`: "module name" of a function or class
    kStorage,  ///< a persistent id: `items`[0] is what it says
    kCall,     ///< `items`: a global and its arguments, which nobody calls
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  double number = 0;
  std::string_view text;
  std::vector<PickleValue>* items = nullptr;

  bool is(Kind what) const { return kind == what; }
  bool is_call(std::string_view global) const;
};

/// What a pickle says, and the memory of it.
struct Pickle {
  PickleValue root;
  std::deque<std::vector<PickleValue>> items;
  std::deque<std::string> texts;
};

/// Reads a pickle of the protocols 0 to 5 as far as torch.save uses them, and runs nothing of it: objects are
/// kept as the calls that would make them. `name` is the file's. The result refers to `bytes`.
/// Throws Error for other instructions and for millions of values.
Pickle read_pickle(std::string_view bytes, const std::string& name);

}  // namespace lorikeet::io
