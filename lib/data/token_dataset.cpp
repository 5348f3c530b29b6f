#include "data/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

template <typename T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// What to_bytes writes in front of the arrays.
struct Header {
  std::int64_t sequences;
  std::int64_t tokens;
};

}  // namespace

void TokenRows::add(std::span<const std::int32_t> sequence_ids, std::span<const std::int32_t> sequence_labels,
                    std::int64_t source_row, std::int64_t source_line) {
  if (sequence_ids.size() != sequence_labels.size())
    throw Error("[data] expected as many labels as ids in a sequence", ErrorKind::kRunFailed);
  ids.insert(ids.end(), sequence_ids.begin(), sequence_ids.end());
  labels.insert(labels.end(), sequence_labels.begin(), sequence_labels.end());
  ends.push_back(static_cast<std::int64_t>(ids.size()));
  source_rows.push_back(source_row);
  source_lines.push_back(source_line);
}

void TokenRows::append(const TokenRows& other) {
  const auto base = static_cast<std::int64_t>(ids.size());
  for (const std::int64_t end : other.ends) ends.push_back(base + end);
  source_rows.insert(source_rows.end(), other.source_rows.begin(), other.source_rows.end());
  source_lines.insert(source_lines.end(), other.source_lines.begin(), other.source_lines.end());
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
  labels.insert(labels.end(), other.labels.begin(), other.labels.end());
}

std::int64_t count_targets(std::span<const std::int32_t> labels) {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(),
                       [](std::int32_t label) { return label != kNoLabel; });
}

TokenDataset::TokenDataset(TokenRows rows) {
  const auto owned = std::make_shared<const TokenRows>(std::move(rows));
  owner_ = owned;
  set_views(owned->ends, owned->source_rows, owned->source_lines, owned->ids, owned->labels);
  fingerprint_ = Sha256().field(bytes_of(ends_)).field(bytes_of(ids_)).field(bytes_of(labels_)).hex();
}

void TokenDataset::set_views(std::span<const std::int64_t> ends, std::span<const std::int64_t> source_rows,
                             std::span<const std::int64_t> source_lines, std::span<const std::int32_t> ids,
                             std::span<const std::int32_t> labels) {
  count_ = ends.size();
  ends_ = ends;
  source_rows_ = source_rows;
  source_lines_ = source_lines;
  ids_ = ids;
  labels_ = labels;
  std::vector<std::int64_t> counts(count_);
  for (std::size_t i = 0; i < count_; ++i) counts[i] = count_targets(this->labels(i));
  label_counts_ = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

std::span<const std::int32_t> TokenDataset::sequence(std::span<const std::int32_t> all, std::size_t i) const {
  const std::size_t k = at(i);
  const auto begin = static_cast<std::size_t>(k == 0 ? 0 : ends_[k - 1]);
  return all.subspan(begin, static_cast<std::size_t>(ends_[k]) - begin);
}

std::string TokenDataset::source_places(std::span<const std::size_t> examples) const {
  bool has_lines = true;
  std::vector<std::string> places;
  places.reserve(examples.size());
  for (const std::size_t i : examples) {
    has_lines = source_line(i) > 0;
    places.push_back(std::to_string(has_lines ? source_line(i) : source_row(i) + 1));
  }
  return std::string(has_lines ? "line" : "row") + (places.size() == 1 ? " " : "s ") + join(places, ", ");
}

std::int64_t TokenDataset::total_tokens() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < size(); ++i) total += length(i);
  return total;
}

std::int64_t TokenDataset::total_labels() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < size(); ++i) total += label_count(i);
  return total;
}

std::int64_t TokenDataset::longest() const {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < size(); ++i) most = std::max(most, length(i));
  return most;
}

TokenDataset TokenDataset::subset(std::vector<std::size_t> indices) const {
  TokenDataset part = *this;
  Sha256 hash;
  hash.field(fingerprint_);
  for (std::size_t& index : indices) {
    if (index >= size()) throw Error("[data] subset: index beyond the data set", ErrorKind::kRunFailed);
    index = at(index);
    hash.field(std::to_string(index));
  }
  part.chosen_ = std::make_shared<const std::vector<std::size_t>>(std::move(indices));
  part.fingerprint_ = hash.hex();
  return part;
}

std::string TokenDataset::to_bytes(std::string front) const {
  if (chosen_) throw Error("[data] a subset has no bytes of its own", ErrorKind::kRunFailed);
  const Header header{static_cast<std::int64_t>(count_), static_cast<std::int64_t>(ids_.size())};
  std::string out = std::move(front);
  out.reserve(out.size() + sizeof header + ends_.size_bytes() * 3 + ids_.size_bytes() * 2);
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  for (const auto& values : {ends_, source_rows_, source_lines_}) out += bytes_of(values);
  for (const auto& values : {ids_, labels_}) out += bytes_of(values);
  return out;
}

TokenDataset TokenDataset::from_bytes(std::string_view bytes, std::shared_ptr<const void> owner,
                                      std::string fingerprint) {
  const auto fail = [](const char* what) -> Error {
    return Error(std::string("[data] tokenised data: ") + what);
  };
  Header header{};
  if (bytes.size() < sizeof header) throw fail("no header");
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t rest = bytes.size() - sizeof header;
  constexpr std::size_t kPerSequence = 3 * sizeof(std::int64_t);
  constexpr std::size_t kPerToken = 2 * sizeof(std::int32_t);
  const auto sequences = static_cast<std::size_t>(header.sequences);
  const auto tokens = static_cast<std::size_t>(header.tokens);
  if (header.sequences < 0 || header.tokens < 0 || sequences > rest / kPerSequence ||
      tokens > rest / kPerToken || sequences * kPerSequence + tokens * kPerToken != rest)
    throw fail("its size doesn't fit its header");
  const char* cursor = bytes.data() + sizeof header;
  if (reinterpret_cast<std::uintptr_t>(cursor) % alignof(std::int64_t) != 0) throw fail("not aligned");
  const auto take = [&]<typename T>(std::size_t n, const T*) {
    const std::span<const T> values(reinterpret_cast<const T*>(cursor), n);
    cursor += values.size_bytes();
    return values;
  };
  const std::int64_t* i64 = nullptr;
  const std::int32_t* i32 = nullptr;
  const auto ends = take(sequences, i64);
  std::int64_t before = 0;
  for (const std::int64_t end : ends) {
    if (end < before || end > header.tokens) throw fail("sequences overlap");
    before = end;
  }
  if (before != header.tokens) throw fail("tokens without a sequence");
  const auto source_rows = take(sequences, i64);
  const auto source_lines = take(sequences, i64);
  const auto ids = take(tokens, i32);
  const auto labels = take(tokens, i32);
  TokenDataset dataset;
  dataset.owner_ = std::move(owner);
  dataset.set_views(ends, source_rows, source_lines, ids, labels);
  dataset.fingerprint_ = std::move(fingerprint);
  return dataset;
}

}  // namespace lorikeet::data
