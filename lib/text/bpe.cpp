#include "text/bpe.h"

#include <functional>
#include <queue>

#include "text/unicode.h"
#include "text/word_cache.h"

namespace lorikeet::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, which stands for a space
constexpr std::size_t kShortWord = 48;              // symbols up to which scanning beats a heap

// Begin of the next mark after `from` that follows something other than a mark, or npos.
std::size_t next_word_start(std::string_view text, std::size_t from) {
  std::size_t at = from;
  while ((at = text.find(kMark, at)) != std::string_view::npos) {
    if (at > from && !text.substr(0, at).ends_with(kMark)) return at;
    at += kMark.size();
  }
  return std::string_view::npos;
}

}  // namespace

// Vocabularies made by sentencepiece come without a pre-tokenizer, so that a piece may be a whole document.
// Where no merge makes a token with a mark behind another character, no merge crosses such a place, and
// cutting there changes nothing but the speed: words then come from the cache.
void Bpe::tokenize(std::string_view piece, std::vector<TokenId>& out) const {
  std::size_t begin = 0;
  while (cut_at_marks_) {
    const std::size_t end = next_word_start(piece, begin);
    if (end == std::string_view::npos) break;
    tokenize_word(piece.substr(begin, end - begin), out);
    begin = end;
  }
  tokenize_word(piece.substr(begin), out);
}

void Bpe::tokenize_word(std::string_view word, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  WordCache& cache = WordCache::of_thread();
  if (cache.find(cache_owner_, word, out)) return;
  if (ignore_merges_) {
    if (const auto id = whole_word(word)) {
      out.push_back(*id);
      cache.store(cache_owner_, word, {&*id, 1});
      return;
    }
  }
  thread_local std::vector<TokenId> symbols;
  symbols.clear();
  split_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  cache.store(cache_owner_, word, symbols);
}

std::optional<TokenId> Bpe::whole_word(std::string_view word) const {
  if (!byte_pieces_) return vocabulary().id_of(word);
  const auto at = raw_words_.find(word);
  if (at == raw_words_.end()) return std::nullopt;
  return at->second;
}

void Bpe::split_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  bool unk_pending = false;
  std::size_t at = 0;
  while (at < word.size()) {
    const std::size_t begin = at;
    TokenId id = -1;
    if (byte_pieces_) {
      id = low_[static_cast<unsigned char>(word[at++])];
    } else {
      const char32_t c = next_code_point(word, at);
      if (c < 0x80) {
        id = low_[c];
      } else if (const std::uint64_t* found = characters_.find(c)) {
        id = static_cast<TokenId>(*found);
      }
    }
    if (id >= 0) {
      if (unk_pending) symbols.push_back(*unk_);
      unk_pending = false;
      symbols.push_back(id);
      continue;
    }
    // A pending unk stays pending over the bytes of another character: the order that the Rust library has.
    if (byte_fallback_ && fall_back_to_bytes(word.substr(begin, at - begin), symbols)) continue;
    if (!unk_) continue;
    if (unk_pending && !fuse_unk_) symbols.push_back(*unk_);
    unk_pending = true;
  }
  if (unk_pending) symbols.push_back(*unk_);
}

bool Bpe::fall_back_to_bytes(std::string_view character, std::vector<TokenId>& symbols) const {
  for (const char byte : character) {
    if (byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
  }
  for (const char byte : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  return true;
}

void Bpe::merge_short(std::vector<TokenId>& symbols) const {
  std::size_t count = symbols.size();
  if (count < 2) return;
  std::array<Merge, kShortWord> merges;  // of the pair that begins at each symbol but the last
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoMerge) break;
    symbols[best] = merges[best].id;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best + 1 < count) merges[best] = merge_of(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = merge_of(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void Bpe::merge_long(std::vector<TokenId>& symbols) const {
  constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  struct Link {
    std::uint32_t previous;
    std::uint32_t next;
    Merge merge;  // with the next symbol
  };
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<Link> links(count);
  // (rank, position) in one number. An entry is stale when the pair at its position has another rank by now.
  std::vector<std::uint64_t> storage;
  storage.reserve(count);
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                                       std::move(storage));
  const auto refresh = [&](std::uint32_t i) {
    Link& link = links[i];
    link.merge = link.next == kEnd ? Merge{kNoMerge, 0} : merge_of(symbols[i], symbols[link.next]);
    if (link.merge.rank != kNoMerge) queue.push(std::uint64_t{link.merge.rank} << 32 | i);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    links[i].previous = i == 0 ? kEnd : i - 1;
    links[i].next = i + 1 == count ? kEnd : i + 1;
    refresh(i);
  }
  while (!queue.empty()) {
    const std::uint64_t top = queue.top();
    queue.pop();
    const auto at = static_cast<std::uint32_t>(top);
    Link& link = links[at];
    if (link.merge.rank != static_cast<std::uint32_t>(top >> 32)) continue;
    symbols[at] = link.merge.id;
    Link& eaten = links[link.next];
    eaten.merge.rank = kNoMerge;
    link.next = eaten.next;
    if (link.next != kEnd) links[link.next].previous = at;
    refresh(at);
    if (link.previous != kEnd) refresh(link.previous);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kEnd; i = links[i].next) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace lorikeet::text
