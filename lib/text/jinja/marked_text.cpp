#include "text/jinja/marked_text.h"

#include <algorithm>

namespace lorikeet::text::jinja {
namespace {

auto run_at(const std::vector<MarkedText::Run>& runs, std::size_t offset) {
  return std::upper_bound(runs.begin(), runs.end(), offset,
                          [](std::size_t at, const MarkedText::Run& run) { return at < run.end; });
}

}  // namespace

Origin MarkedText::origin_at(std::size_t offset) const {
  const auto run = run_at(runs_, offset);
  return run == runs_.end() ? kFromTemplate : run->origin;
}

void MarkedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end, Origin also) {
  const std::string_view bytes = other.bytes_;
  for (auto run = run_at(other.runs_, begin); begin < end && run != other.runs_.end(); ++run) {
    const std::size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), static_cast<Origin>(run->origin | also));
    begin = stop;
  }
}

MarkedText MarkedText::substr(std::size_t begin, std::size_t end) const {
  MarkedText part;
  part.safe_ = safe_;
  part.append(*this, begin, end);
  return part;
}

void MarkedText::mark(std::size_t begin, Origin also) {
  const MarkedText tail = substr(begin, size());
  MarkedText marked = substr(0, begin);
  marked.append(tail, 0, tail.size(), also);
  *this = std::move(marked);
}

}  // namespace lorikeet::text::jinja
