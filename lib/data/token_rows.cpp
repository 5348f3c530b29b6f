#include "data/token_rows.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kBits = 32;

std::size_t mask_words(std::size_t tokens) { return (tokens + kBits - 1) / kBits; }

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
void append_to(std::vector<T>& values, const std::vector<T>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

std::uint32_t narrow(std::int64_t value, const char* what) {
  if (value >= 0 && value <= UINT32_MAX) return static_cast<std::uint32_t>(value);
  throw Error(std::string("[data] expected ") + what + " of at most 4294967295, got " + std::to_string(value),
              ErrorKind::kRunFailed);
}

// What Sha256::field puts before bytes that are at hand.
void begin_field(Sha256& hash, std::size_t bytes) { hash.update(std::to_string(bytes) + ":"); }

}  // namespace

std::int64_t count_targets(std::span<const std::int32_t> labels) {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(),
                       [](std::int32_t label) { return label != kNoLabel; });
}

std::size_t TokenRows::bytes() const {
  return words.size() * sizeof(std::int32_t) + size() * (sizeof(std::uint64_t) + 4 * sizeof(std::uint32_t));
}

void TokenRows::add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                    std::int64_t source_row, std::int64_t source_line) {
  if (ids.size() != labels.size() || ids.size() > INT32_MAX)
    throw Error("[data] expected as many labels as ids in a sequence", ErrorKind::kRunFailed);
  const std::uint32_t row = narrow(source_row, "rows");
  const std::uint32_t line = narrow(source_line, "lines");
  begins.push_back(words.size());
  label_counts.push_back(static_cast<std::uint32_t>(count_targets(labels)));
  source_rows.push_back(row);
  source_lines.push_back(line);
  words.insert(words.end(), ids.begin(), ids.end());
  auto length = static_cast<std::uint32_t>(ids.size());
  std::vector<std::uint32_t> mask(mask_words(ids.size()), 0);
  bool own_ids = true;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if (labels[t] == kNoLabel) continue;
    own_ids = own_ids && labels[t] == ids[t];
    mask[t / kBits] |= std::uint32_t{1} << (t % kBits);
  }
  if (own_ids) {
    words.insert(words.end(), mask.begin(), mask.end());
  } else {
    length |= TokenViews::kFullLabels;
    words.insert(words.end(), labels.begin(), labels.end());
  }
  lengths.push_back(length);
}

void TokenRows::append(const TokenRows& other) {
  const std::size_t base = words.size();
  for (const std::uint64_t begin : other.begins) begins.push_back(base + begin);
  append_to(words, other.words);
  append_to(lengths, other.lengths);
  append_to(label_counts, other.label_counts);
  append_to(source_rows, other.source_rows);
  append_to(source_lines, other.source_lines);
}

TokenViews::TokenViews(const TokenRows& rows)
    : words(rows.words),
      begins(rows.begins),
      lengths(rows.lengths),
      label_counts(rows.label_counts),
      source_rows(rows.source_rows),
      source_lines(rows.source_lines) {}

void TokenViews::labels(std::size_t i, std::vector<std::int32_t>& out) const {
  const std::span<const std::int32_t> own = ids(i);
  const std::span<const std::int32_t> behind = words.subspan(begins[i] + own.size());
  if ((lengths[i] & kFullLabels) != 0) {
    out.assign(behind.begin(), behind.begin() + static_cast<std::ptrdiff_t>(own.size()));
    return;
  }
  const std::size_t rest = own.size() % kBits;
  if (rest != 0 && static_cast<std::uint32_t>(behind[own.size() / kBits]) >> rest != 0)
    throw Error("[data] tokenised data: labels of tokens that aren't there");
  out.assign(own.begin(), own.end());
  for (std::size_t t = 0; t < own.size(); ++t) {
    const auto mask = static_cast<std::uint32_t>(behind[t / kBits]);
    if ((mask >> (t % kBits) & 1) == 0) out[t] = kNoLabel;
  }
}

void TokenViews::check() const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(std::string("[data] tokenised data: ") + what);
  };
  for (const auto& array : {lengths, label_counts, source_rows, source_lines})
    require(array.size() == size(), "arrays of different lengths");
  std::size_t next = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto tokens = static_cast<std::size_t>(length(i));
    require(begins[i] == next, "examples that don't follow each other");
    require(label_counts[i] <= tokens, "more labels than tokens");
    next += tokens + ((lengths[i] & kFullLabels) != 0 ? tokens : mask_words(tokens));
    require(next <= words.size(), "an example beyond the end");
  }
  require(next == words.size(), "words without an example");
}

std::string content_fingerprint(const TokenViews& examples, const std::function<void(std::size_t)>& passed) {
  Sha256 hash;
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  begin_field(hash, examples.size() * sizeof(std::int64_t));
  for (std::size_t i = 0; i < examples.size(); ++i) {
    ends.push_back(end += examples.length(i));
    constexpr std::size_t kAtOnce = 4096;
    if (ends.size() < kAtOnce && i + 1 < examples.size()) continue;
    hash.update(bytes_of(ends));
    ends.clear();
  }
  std::vector<std::int32_t> values;
  const auto tokens = static_cast<std::size_t>(end);
  for (const bool labels : {false, true}) {
    begin_field(hash, tokens * sizeof(std::int32_t));
    for (std::size_t i = 0; i < examples.size(); ++i) {
      if (labels) {
        examples.labels(i, values);
        hash.update(bytes_of(values));
      } else {
        const auto ids = examples.ids(i);
        hash.update({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
      }
      if (passed) passed(examples.begins[i]);
    }
  }
  return hash.hex();
}

}  // namespace lorikeet::data
