#include "text/split.h"

#include "support/catch.h"
#include "text/word_cache.h"

namespace {

using lorikeet::text::SplitBehavior;
using Strings = std::vector<std::string>;

Strings split_dashes(std::string_view text, SplitBehavior behavior, bool invert = false) {
  std::vector<lorikeet::text::Span> spans;
  lorikeet::text::collect_spans(text, invert, spans, [&](auto&& visit) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '-') visit(i, i + 1);
    }
  });
  std::vector<lorikeet::text::Piece> pieces;
  lorikeet::text::cut({text, true}, spans, behavior, pieces);
  Strings out;
  for (const auto& piece : pieces) out.emplace_back(piece.text);
  return out;
}

}  // namespace

TEST_CASE("each behaviour does with matches what its name says") {
  const std::string_view text = "the-final--countdown";
  CHECK(split_dashes(text, SplitBehavior::kRemoved) == Strings{"the", "final", "countdown"});
  CHECK(split_dashes(text, SplitBehavior::kIsolated) == Strings{"the", "-", "final", "-", "-", "countdown"});
  CHECK(split_dashes(text, SplitBehavior::kMergedWithPrevious) ==
        Strings{"the-", "final-", "-", "countdown"});
  CHECK(split_dashes(text, SplitBehavior::kMergedWithNext) == Strings{"the", "-final", "-", "-countdown"});
  CHECK(split_dashes(text, SplitBehavior::kContiguous) == Strings{"the", "-", "final", "--", "countdown"});
  CHECK(split_dashes(text, SplitBehavior::kRemoved, true) == Strings{"-", "-", "-"});
  CHECK(split_dashes("", SplitBehavior::kIsolated).empty());
}

TEST_CASE("only the first piece stands at the start") {
  std::vector<lorikeet::text::Span> spans{{0, 1, false}, {1, 2, true}};
  std::vector<lorikeet::text::Piece> pieces;
  lorikeet::text::cut({"ab", true}, spans, SplitBehavior::kIsolated, pieces);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].at_start);
  CHECK_FALSE(pieces[1].at_start);
}

TEST_CASE("the word cache keeps models apart and forgets what is too long") {
  using lorikeet::text::WordCache;
  WordCache& cache = WordCache::of_thread();
  const auto one = WordCache::new_owner();
  const auto two = WordCache::new_owner();
  const std::vector<lorikeet::text::TokenId> ids{1, 2, 3};
  cache.store(one, "word", ids);
  std::vector<lorikeet::text::TokenId> out{9};
  CHECK_FALSE(cache.find(two, "word", out));
  CHECK_FALSE(cache.find(one, "worse", out));
  REQUIRE(cache.find(one, "word", out));
  CHECK(out == std::vector<lorikeet::text::TokenId>{9, 1, 2, 3});
  const std::string longer(WordCache::kMaxBytes + 1, 'x');
  cache.store(one, longer, ids);
  CHECK_FALSE(cache.find(one, longer, out));
}
