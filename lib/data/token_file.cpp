#include "data/token_file.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/file_pieces.h"
#include "base/hash.h"
#include "base/json.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kAtOnce = std::size_t{1} << 20;
constexpr std::size_t kPassedAtOnce = std::size_t{64} << 20;
constexpr std::array<char, 8> kMagic{'L', 'K', 'T', 'O', 'K', 'E', 'N', '2'};
constexpr std::size_t kPerSequence = sizeof(std::uint64_t) + 4 * sizeof(std::uint32_t);

struct Trailer {
  std::array<char, 8> magic;
  std::uint64_t words;
  std::uint64_t sequences;
  std::uint64_t meta_bytes;
  std::array<char, 64> sha256;  // of all behind the words, with the numbers above
};

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// Those that a file keeps: what other settings of the same rows leave out is counted anew.
constexpr std::array<std::pair<const char*, std::int64_t RowCounts::*>, 8> kCounts{
    {{"rows", &RowCounts::rows},
     {"truncated", &RowCounts::truncated},
     {"dropped", &RowCounts::dropped},
     {"without_labels", &RowCounts::without_labels},
     {"split", &RowCounts::split},
     {"unknown_ids", &RowCounts::unknown_ids},
     {"empty_answers", &RowCounts::empty_answers},
     {"incomplete", &RowCounts::incomplete}}};

std::string meta_of(const TokenizedFile& about, const std::string& fingerprint) {
  Json meta;
  meta.set("format", about.format)
      .set("template", about.template_description)
      .set("fingerprint", fingerprint);
  for (const auto& [name, count] : kCounts) meta.set(name, about.counts.*count);
  std::string text = meta.dump();
  text.resize(padded(text.size()), ' ');
  return text;
}

std::string seal_of(const MappedFile& file, const Trailer& trailer) {
  Sha256 hash;
  const std::size_t words_end = trailer.words * sizeof(std::int32_t);
  const std::size_t index_end = padded(words_end) + padded(trailer.sequences * kPerSequence);
  for_each_piece(file, words_end, index_end + trailer.meta_bytes,
                 [&](std::string_view piece) { hash.update(piece); });
  hash.update({reinterpret_cast<const char*>(&trailer), offsetof(Trailer, sha256)});
  return hash.hex();
}

TokenViews views_of(const MappedFile& file, std::size_t words, std::size_t sequences) {
  const char* cursor = file.bytes().data();
  const auto take = [&]<typename T>(std::size_t n, std::span<const T>& values) {
    values = {reinterpret_cast<const T*>(cursor), n};
    cursor += values.size_bytes();
  };
  TokenViews views;
  take(words, views.words);
  if (words % 2 != 0) cursor += sizeof(std::int32_t);
  take(sequences, views.begins);
  take(sequences, views.lengths);
  take(sequences, views.label_counts);
  take(sequences, views.source_rows);
  take(sequences, views.source_lines);
  return views;
}

std::string fingerprint_of(const MappedFile& file, const TokenViews& views) {
  std::size_t dropped = 0;
  return content_fingerprint(views, [&](std::size_t word) {
    const std::size_t at = word * sizeof(std::int32_t);
    if (at < dropped) dropped = 0;  // the second pass begins
    if (at - dropped < kPassedAtOnce) return;
    file.drop_pages(dropped, at - dropped);
    dropped = at;
  });
}

}  // namespace

void TokenFileWriter::add_to(Column& column, std::string_view bytes) const {
  column.waiting += bytes;
  column.bytes += bytes.size();
  if (column.waiting.size() < kAtOnce) return;
  if (!column.file) column.file = std::make_unique<AnonymousFile>(folder_);
  column.file->write(column.waiting);
  column.waiting.clear();
}

TokenFileWriter::TokenFileWriter(std::filesystem::path folder, const std::filesystem::path* path)
    : folder_(std::move(folder)) {
  if (path != nullptr) {
    named_ = std::make_unique<AtomicFile>(*path, 0600);
  } else {
    anonymous_ = std::make_unique<AnonymousFile>(folder_);
  }
}

std::unique_ptr<TokenFileWriter> TokenFileWriter::make_named(const std::filesystem::path& path) {
  return std::unique_ptr<TokenFileWriter>(new TokenFileWriter(path.parent_path(), &path));
}

std::unique_ptr<TokenFileWriter> TokenFileWriter::make_anonymous(const std::filesystem::path& folder) {
  return std::unique_ptr<TokenFileWriter>(new TokenFileWriter(folder, nullptr));
}

std::filesystem::path TokenFileWriter::readable_path() const {
  return named_ ? named_->temporary_path() : anonymous_->path();
}

void TokenFileWriter::flush() {
  if (named_) {
    named_->write(waiting_);
    if (written_ - writeback_ >= kPassedAtOnce) {
      named_->start_writeback();
      writeback_ = written_;
    }
  } else {
    anonymous_->write(waiting_);
  }
  waiting_.clear();
}

void TokenFileWriter::write(std::string_view bytes) {
  waiting_ += bytes;
  written_ += bytes.size();
  if (waiting_.size() >= kAtOnce) flush();
}

void TokenFileWriter::pad() { write(std::string(padded(written_) - written_, '\0')); }

void TokenFileWriter::append(const TokenRows& rows) {
  std::vector<std::uint64_t> begins = rows.begins;
  for (std::uint64_t& begin : begins) begin += words_;
  write(bytes_of(rows.words));
  add_to(columns_[0], bytes_of(begins));
  add_to(columns_[1], bytes_of(rows.lengths));
  add_to(columns_[2], bytes_of(rows.label_counts));
  add_to(columns_[3], bytes_of(rows.source_rows));
  add_to(columns_[4], bytes_of(rows.source_lines));
  words_ += rows.words.size();
  sequences_ += rows.size();
}

void TokenFileWriter::append_columns() {
  for (Column& column : columns_) {
    const std::size_t on_disk = column.bytes - column.waiting.size();
    if (column.file) {
      const MappedFile map(column.file->path());
      if (map.bytes().size() != on_disk)
        throw Error("[file] a temporary file changed its size", ErrorKind::kEnvironment);
      for (std::size_t at = 0; at < on_disk; at += kAtOnce) {
        write(map.bytes().substr(at, kAtOnce));
        map.drop_pages(at, std::min(kAtOnce, on_disk - at));
      }
    }
    write(column.waiting);
  }
}

TokenizedFile TokenFileWriter::finish(const TokenizedFile& about) {
  pad();
  append_columns();
  pad();
  flush();
  const MappedFile so_far(readable_path());
  const TokenViews views = views_of(so_far, words_, sequences_);
  const std::string meta = meta_of(about, fingerprint_of(so_far, views));
  write(meta);
  flush();
  Trailer trailer{
      .magic = kMagic, .words = words_, .sequences = sequences_, .meta_bytes = meta.size(), .sha256 = {}};
  const std::string seal = seal_of(MappedFile(readable_path()), trailer);
  std::copy(seal.begin(), seal.end(), trailer.sha256.begin());
  write({reinterpret_cast<const char*>(&trailer), sizeof trailer});
  flush();
  if (named_) {
    named_->commit();
    return read_token_file(named_->path(), /*check_words=*/false);
  }
  return read_token_file(anonymous_->path(), /*check_words=*/false);
}

TokenizedFile read_token_file(const std::filesystem::path& path, bool check_words) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string_view bytes = file->bytes();
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(what);
  };
  Trailer trailer{};
  require(bytes.size() >= sizeof trailer, "it is cut short");
  const std::uint64_t body = bytes.size() - sizeof trailer;
  std::memcpy(&trailer, bytes.data() + body, sizeof trailer);
  require(trailer.magic == kMagic, "it is cut short, or no cache file of this version");
  require(trailer.words <= body / sizeof(std::int32_t) && trailer.sequences <= body / kPerSequence &&
              trailer.meta_bytes <= body &&
              padded(trailer.words * sizeof(std::int32_t)) + padded(trailer.sequences * kPerSequence) +
                      trailer.meta_bytes ==
                  body,
          "its size is wrong");
  require(seal_of(*file, trailer) == std::string_view(trailer.sha256.data(), trailer.sha256.size()),
          "its checksum is wrong");
  const Json meta = Json::parse(bytes.substr(body - trailer.meta_bytes, trailer.meta_bytes), "cache");
  const JsonView view(meta, "cache");
  TokenizedFile out;
  const TokenViews views = views_of(*file, trailer.words, trailer.sequences);
  views.check();
  const std::string& fingerprint = view.at("fingerprint").as_string();
  require(!check_words || fingerprint_of(*file, views) == fingerprint, "its tokens' checksum is wrong");
  out.dataset = TokenDataset(views, file, trailer.words * sizeof(std::int32_t), fingerprint);
  out.format = view.at("format").as_string();
  out.template_description = view.at("template").as_string();
  for (const auto& [name, count] : kCounts) out.counts.*count = view.at(name).as_int();
  return out;
}

}  // namespace lorikeet::data
