#pragma once

#include <zlib.h>
#include <zstd.h>

#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/load.h"
#include "support/fake_tokenizer.h"
#include "support/paths.h"

namespace lorikeet::test {

/// `text` as a gzip file of one member.
inline std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// `text` as a zstd file of one frame.
inline std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

/// A data file in a folder of its own, read with the one-id-a-byte tokenizer and without a cache.
struct DataFixture {
  TemporaryFolder folder;
  data::DataOptions options;
  FakeTokenizerOptions tokenizer_options;

  DataFixture() { options.use_cache = false; }

  std::filesystem::path write(const std::string& bytes, const std::string& name = "train.jsonl") {
    options.train_path = folder / name;
    write_file_atomic(options.train_path, bytes);
    return options.train_path;
  }
  data::LoadedFile load(const std::string& bytes, const std::string& name = "train.jsonl") {
    return data::load_file(write(bytes, name), options, *fake_tokenizer(tokenizer_options));
  }
};

/// Ids of the one-id-a-byte tokenizer as text, control tokens spelt out.
inline std::string spell(std::span<const std::int32_t> ids) {
  const auto tokenizer = fake_tokenizer();
  std::string out;
  for (const std::int32_t id : ids) out += tokenizer->token_of(id);
  return out;
}

/// The tokens of an example that have labels.
inline std::string spell_labels(const data::TokenDataset& dataset, std::size_t i) {
  std::vector<std::int32_t> labels;
  for (const std::int32_t label : dataset.labels(i))
    if (label != data::kNoLabel) labels.push_back(label);
  return spell(labels);
}

/// A data set of sequences of the given lengths: tokens count up from 1, labels equal tokens.
inline data::TokenDataset counting_dataset(const std::vector<std::size_t>& lengths) {
  data::TokenRows rows;
  std::int32_t next = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> ids;
    for (std::size_t t = 0; t < lengths[i]; ++t) ids.push_back(next++);
    rows.add(ids, ids, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i + 1));
  }
  return data::TokenDataset(std::move(rows));
}

}  // namespace lorikeet::test
