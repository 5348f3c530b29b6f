#include "text/sentencepiece_check.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/strings.h"
#include "text/protobuf_reader.h"
#include "text/vocabulary.h"

namespace lorikeet::text {
namespace {

using Wire = ProtobufReader::Wire;

constexpr std::size_t kMaxPieceBytes = 4096;

// Field numbers of sentencepiece_model.proto.
constexpr std::uint32_t kModelPieces = 1;
constexpr std::uint32_t kModelTrainerSpec = 2;
constexpr std::uint32_t kModelNormalizerSpec = 3;
constexpr std::uint32_t kModelDenormalizerSpec = 5;
constexpr std::uint32_t kPieceText = 1;
constexpr std::uint32_t kPieceScore = 2;
constexpr std::uint32_t kPieceType = 3;
constexpr std::uint32_t kTrainerModelType = 3;
constexpr std::uint32_t kTrainerByteFallback = 35;
constexpr std::uint32_t kTrainerWhitespaceAsSuffix = 24;
constexpr std::uint32_t kNormalizerCharsMap = 2;
constexpr std::uint32_t kNormalizerAddDummyPrefix = 3;
constexpr std::uint32_t kNormalizerRemoveExtra = 4;
constexpr std::uint32_t kNormalizerEscape = 5;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error("[" + where + "] not a usable sentencepiece model: " + what);
}

void require(bool good, const std::string& where, const char* what) {
  if (!good) fail(where, what);
}

SentencePieceSummary::Piece read_piece(std::string_view bytes, std::size_t id, const std::string& where) {
  SentencePieceSummary::Piece piece{{}, SentencePieceSummary::Type::kNormal, 0};
  const std::string here = where + ": piece " + std::to_string(id);
  ProtobufReader reader(bytes, here);
  while (const auto field = reader.next()) {
    if (field->number == kPieceText) {
      require(field->wire == Wire::kBytes, here, "its text is no string");
      piece.text = field->bytes;
    } else if (field->number == kPieceScore) {
      require(field->wire == Wire::kFixed32, here, "its score is no float");
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->integer));
      require(std::isfinite(piece.score), here, "its score is not finite");
    } else if (field->number == kPieceType) {
      require(field->wire == Wire::kVarint && field->integer >= 1 && field->integer <= 6, here,
              "its type is none of 1 to 6");
      piece.type = static_cast<SentencePieceSummary::Type>(field->integer);
    }
  }
  require(!piece.text.empty(), here, "it has no text");
  require(piece.text.size() <= kMaxPieceBytes, here, "its text is longer than 4096 bytes");
  require(piece.text.find('\0') == std::string::npos, here, "its text holds a NUL");
  require(is_utf8(piece.text), here, "its text is not UTF-8");
  return piece;
}

void check_pieces(const std::vector<SentencePieceSummary::Piece>& pieces, bool byte_fallback,
                  const std::string& where) {
  std::unordered_set<std::string_view> seen;
  std::size_t unknown = 0;
  std::size_t bytes = 0;
  for (const auto& piece : pieces) {
    if (!seen.insert(piece.text).second) {
      fail(where, "piece '" + escape_control(piece.text) + "' is there twice");
    }
    unknown += piece.type == SentencePieceSummary::Type::kUnknown ? 1 : 0;
    if (piece.type != SentencePieceSummary::Type::kByte) continue;
    ++bytes;
    const std::string_view text = piece.text;
    const bool named = text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
                       text.find_first_not_of("0123456789ABCDEF", 3) == 5;
    if (!named) fail(where, "byte piece '" + escape_control(text) + "' is not named <0xNN>");
  }
  if (unknown != 1) fail(where, std::to_string(unknown) + " unknown pieces, expected exactly one");
  if (bytes != 0 && bytes != 256) fail(where, std::to_string(bytes) + " byte pieces, expected 0 or 256");
  if (byte_fallback && bytes == 0) fail(where, "byte_fallback without byte pieces");
}

void read_trainer_spec(std::string_view bytes, std::uint64_t& model_type, SentencePieceSummary& summary,
                       const std::string& where) {
  const std::string here = where + ": trainer_spec";
  ProtobufReader reader(bytes, here);
  while (const auto field = reader.next()) {
    if (field->number == kTrainerModelType) model_type = field->integer;
    if (field->number == kTrainerByteFallback) summary.byte_fallback = field->integer != 0;
    if (field->number == kTrainerWhitespaceAsSuffix) summary.whitespace_as_suffix = field->integer != 0;
  }
}

// The map that normalisation walks: the byte length of a double-array trie (darts-clone), the trie, and the
// NUL-ended strings that its leaves point to. From unit `i`, the walk goes to unit `i ^ offset ^ byte`.
void check_chars_map(std::string_view map, const std::string& where) {
  if (map.empty()) return;
  std::uint32_t trie_bytes = 0;
  require(map.size() > sizeof(trie_bytes), where, "it is cut");
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  map.remove_prefix(sizeof(trie_bytes));
  require(trie_bytes >= 1024 && trie_bytes % 1024 == 0 && trie_bytes < map.size(), where,
          "its trie's length is impossible");
  const std::string_view strings = map.substr(trie_bytes);
  require(strings.back() == '\0', where, "its strings don't end");
  const std::size_t units = trie_bytes / sizeof(std::uint32_t);
  const auto unit_at = [&](std::size_t i) {
    std::uint32_t unit = 0;
    std::memcpy(&unit, map.data() + i * sizeof(unit), sizeof(unit));
    return unit;
  };
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = unit_at(i);
    if (unit >> 31 != 0) continue;  // a leaf, which is only read as a value
    const std::size_t offset = std::size_t{unit >> 10} << ((unit & 0x200U) >> 6);
    const std::size_t base = i ^ offset;
    require((base | 0xFF) < units, where, "its trie points outside itself");
    if ((unit >> 8 & 1) == 0) continue;
    require((unit_at(base) & 0x7FFFFFFF) < strings.size(), where, "its trie points outside its strings");
  }
}

void read_normalizer_spec(std::string_view bytes, SentencePieceSummary& summary, const std::string& where) {
  ProtobufReader reader(bytes, where);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case kNormalizerCharsMap:
        require(field->wire == Wire::kBytes, where, "its precompiled_charsmap is no bytes");
        check_chars_map(field->bytes, where + ": precompiled_charsmap");
        summary.has_chars_map = !field->bytes.empty();
        break;
      case kNormalizerAddDummyPrefix: summary.add_dummy_prefix = field->integer != 0; break;
      case kNormalizerRemoveExtra: summary.remove_extra_whitespaces = field->integer != 0; break;
      case kNormalizerEscape: summary.escape_whitespaces = field->integer != 0; break;
      default: break;
    }
  }
}

}  // namespace

SentencePieceSummary check_sentencepiece_model(std::string_view bytes, const std::string& where) {
  static_assert(std::endian::native == std::endian::little, "the chars map is read in place");
  SentencePieceSummary summary;
  std::uint64_t model_type = 1;  // the format's default: unigram
  ProtobufReader reader(bytes, where);
  while (const auto field = reader.next()) {
    const bool known = field->number <= kModelDenormalizerSpec;
    require(!known || field->wire == Wire::kBytes, where, "a part of it is no message");
    switch (field->number) {
      case kModelPieces:
        require(summary.pieces.size() < static_cast<std::size_t>(Vocabulary::kIdLimit), where,
                "more than 16777216 pieces");
        summary.pieces.push_back(read_piece(field->bytes, summary.pieces.size(), where));
        break;
      case kModelTrainerSpec: read_trainer_spec(field->bytes, model_type, summary, where); break;
      case kModelNormalizerSpec:
        read_normalizer_spec(field->bytes, summary, where + ": normalizer_spec");
        break;
      case kModelDenormalizerSpec: {
        SentencePieceSummary unused;  // this one is for decoding
        read_normalizer_spec(field->bytes, unused, where + ": denormalizer_spec");
        break;
      }
      default: break;
    }
  }
  require(!summary.pieces.empty(), where, "it has no pieces");
  require(model_type == 1 || model_type == 2, where, "its model type is neither unigram (1) nor BPE (2)");
  summary.is_unigram = model_type == 1;
  check_pieces(summary.pieces, summary.byte_fallback, where);
  return summary;
}

}  // namespace lorikeet::text
