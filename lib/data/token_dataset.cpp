#include "data/token_dataset.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet::data {

// Mapped pages that were read count as the process's memory until they are dropped. Examples are read in
// random order, so all are dropped now and then: what is read again comes from the page cache.
class TokenDataset::Residence {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{128} << 20;

  Residence(const MappedFile& file, std::size_t bytes) : file_(file), bytes_(bytes) {}

  void read(std::size_t bytes) const {
    static constexpr std::size_t kAround = std::size_t{64} << 10;  // a page fault maps its neighbours too
    if (read_.fetch_add(bytes + kAround) + bytes + kAround < kMostBytes) return;
    read_ = 0;
    file_.drop_pages(0, bytes_);
  }

 private:
  const MappedFile& file_;
  std::size_t bytes_;
  mutable std::atomic<std::size_t> read_{0};
};

TokenDataset::TokenDataset(TokenRows rows) {
  const auto owned = std::make_shared<const TokenRows>(std::move(rows));
  owner_ = owned;
  views_ = TokenViews(*owned);
  fingerprint_ = content_fingerprint(views_);
}

TokenDataset::TokenDataset(const TokenViews& views, std::shared_ptr<const MappedFile> file,
                           std::size_t words_bytes, std::string fingerprint)
    : views_(views), fingerprint_(std::move(fingerprint)) {
  if (words_bytes > Residence::kMostBytes) residence_ = std::make_shared<const Residence>(*file, words_bytes);
  owner_ = std::move(file);
}

std::span<const std::int32_t> TokenDataset::ids(std::size_t i) const {
  const auto ids = views_.ids(at(i));
  if (residence_) residence_->read(ids.size_bytes());
  return ids;
}

std::vector<std::int32_t> TokenDataset::labels(std::size_t i) const {
  std::vector<std::int32_t> out;
  views_.labels(at(i), out);
  if (residence_) residence_->read(out.size() * sizeof(std::int32_t));
  return out;
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

TokenDataset TokenDataset::subset(std::vector<std::uint32_t> indices) const {
  TokenDataset part = *this;
  Sha256 hash;
  hash.field(fingerprint_);
  for (std::uint32_t& index : indices) {
    if (index >= size()) throw Error("[data] subset: index beyond the data set", ErrorKind::kRunFailed);
    index = static_cast<std::uint32_t>(at(index));
    hash.field(std::to_string(index));
  }
  part.chosen_ = std::make_shared<const std::vector<std::uint32_t>>(std::move(indices));
  part.fingerprint_ = hash.hex();
  return part;
}

}  // namespace lorikeet::data
