#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::text::jinja {

/// Who wrote a character. Flags: a row's text inside a generation block has both.
using Origin = std::uint8_t;
constexpr Origin kFromTemplate = 0;  ///< the template itself
constexpr Origin kFromRow = 1;       ///< a row of data
constexpr Origin kGenerated = 2;     ///< written inside {% generation %}: the model is to say it

/// Origins of a row's text carry a number besides, 0 to 63, which tells the messages of a conversation apart.
constexpr Origin kOriginTags = 64;
constexpr Origin tagged_origin(std::size_t tag) {
  return static_cast<Origin>(kFromRow | (tag % kOriginTags) << 2U);
}
constexpr std::size_t tag_of(Origin origin) { return origin >> 2U; }

/// UTF-8 text that knows the origin of each byte, as runs. All that makes text out of text goes through
/// `substr` and `append`, so origins follow every filter and method.
class MarkedText {
 public:
  struct Run {
    std::size_t end;  ///< offset behind the run's last byte
    Origin origin;
  };

  MarkedText() = default;
  explicit MarkedText(std::string_view bytes, Origin origin = kFromTemplate) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  /// In order; the last one ends at the text's end, neighbours differ.
  const std::vector<Run>& runs() const { return runs_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  /// jinja2's Markup, which the filter `safe` makes: HTML in texts that are added to it is escaped. Copies
  /// and `substr` keep it; `append` leaves it as it is.
  bool safe() const { return safe_; }
  void set_safe(bool safe) { safe_ = safe; }
  /// The empty text, safe where this one is.
  MarkedText emptied() const { return substr(0, 0); }

  Origin origin_at(std::size_t offset) const;

  void append(std::string_view bytes, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  void append(const MarkedText& other, std::size_t begin, std::size_t end, Origin also = 0);
  MarkedText substr(std::size_t begin, std::size_t end) const;
  /// Sets the flags of `also` from `begin` to the end.
  void mark(std::size_t begin, Origin also);

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool safe_ = false;
};

}  // namespace lorikeet::text::jinja
