#include "data/tokenize.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "base/error.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kRowsPerChunk = 64;

class RowEncoder {
 public:
  RowEncoder(const RecordSource& file, Format format, const DataOptions& options,
             const text::PromptEncoder& encoder)
      : file_(file), format_(format), options_(options), encoder_(encoder) {}

  void encode(std::size_t i, TokenRows& out, RowCounts& counts) const {
    const std::string where = file_.where(i);
    const Row row = parse_row(file_.parse(i), format_, options_.columns, where);
    const EncodedRow encoded = [&] {
      try {
        return encode_row(row, encoder_, options_.train_on, options_.embedding_rows);
      } catch (const Error& error) {
        throw Error(where + ": " + error.what());
      }
    }();
    ++counts.rows;
    if (format_ == Format::kTokens) counts.unknown_ids += count_unknown(encoded.ids);
    if (count_targets(encoded.labels) == 0) {
      ++counts.without_labels;
      return;
    }
    add(encoded, i, out, counts);
  }

 private:
  std::int64_t count_unknown(std::span<const std::int32_t> ids) const {
    const auto known = static_cast<std::int64_t>(encoder_.tokenizer().vocab_size());
    return std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= known; });
  }

  void add(const EncodedRow& row, std::size_t i, TokenRows& out, RowCounts& counts) const {
    const auto line = static_cast<std::int64_t>(file_.line(i));
    const auto limit = static_cast<std::size_t>(options_.max_seq_len);
    const std::span<const std::int32_t> ids = row.ids;
    const std::span<const std::int32_t> labels = row.labels;
    if (ids.size() <= limit) {
      out.add(ids, labels, static_cast<std::int64_t>(i), line);
    } else if (format_ == Format::kText) {
      ++counts.split;
      for (std::size_t begin = 0; begin < ids.size(); begin += limit) {
        const std::size_t length = std::min(limit, ids.size() - begin);
        // A chunk of one token has no target.
        if (length > 1)
          out.add(ids.subspan(begin, length), labels.subspan(begin, length), static_cast<std::int64_t>(i),
                  line);
      }
    } else if (options_.overlong == Overlong::kError) {
      throw Error(file_.where(i) + ": expected at most " + std::to_string(limit) +
                  " tokens (data.max_seq_len), got " + std::to_string(ids.size()) +
                  "; raise the limit, or set data.overlong to truncate or drop");
    } else if (options_.overlong == Overlong::kDrop) {
      ++counts.dropped;
    } else if (count_targets(labels.first(limit)) == 0) {
      ++counts.truncated;
      ++counts.without_labels;
    } else {
      ++counts.truncated;
      out.add(ids.first(limit), labels.first(limit), static_cast<std::int64_t>(i), line);
    }
  }

  const RecordSource& file_;
  Format format_;
  const DataOptions& options_;
  const text::PromptEncoder& encoder_;
};

void check_token_range(const TokensRow& row, std::size_t tokenizer_size, std::int64_t embedding_rows) {
  const std::size_t limit = embedding_rows > 0 ? static_cast<std::size_t>(embedding_rows) : tokenizer_size;
  const std::string of_what =
      embedding_rows > 0 ? "the model's embedding rows, " : "the tokenizer's vocabulary size, ";
  const auto fail = [&](const char* what, std::size_t i, std::int32_t value) {
    throw Error(std::string("expected ") + what + " below " + of_what + std::to_string(limit) + ", element " +
                std::to_string(i) + " is " + std::to_string(value));
  };
  const auto in_range = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < limit; };
  for (std::size_t i = 0; i < row.ids.size(); ++i) {
    if (!in_range(row.ids[i])) fail("input_ids", i, row.ids[i]);
    if (row.labels[i] != kNoLabel && !in_range(row.labels[i]))
      fail("labels that are -100 or", i, row.labels[i]);
  }
}

struct Chunk {
  TokenRows rows;
  RowCounts counts;
  std::exception_ptr error;
};

// Chunks are taken in order and each stops at its first error, so all rows before the first error of the
// lowest chunk that has one were fine: the error reported doesn't depend on the number of threads.
std::vector<Chunk> run_chunks(std::size_t records, unsigned threads, const RowEncoder& encoder) {
  std::vector<Chunk> chunks((records + kRowsPerChunk - 1) / kRowsPerChunk);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t c = next++; c < chunks.size() && !failed; c = next++) {
      try {
        const std::size_t end = std::min(records, (c + 1) * kRowsPerChunk);
        for (std::size_t i = c * kRowsPerChunk; i < end; ++i)
          encoder.encode(i, chunks[c].rows, chunks[c].counts);
      } catch (...) {
        chunks[c].error = std::current_exception();
        failed = true;
      }
    }
  };
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  const std::size_t wanted = std::min<std::size_t>(threads, chunks.size());
  for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return chunks;
}

}  // namespace

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  rows += other.rows;
  truncated += other.truncated;
  dropped += other.dropped;
  without_labels += other.without_labels;
  split += other.split;
  unknown_ids += other.unknown_ids;
  other_length += other.other_length;
  duplicates += other.duplicates;
  return *this;
}

EncodedRow encode_row(const Row& row, const text::PromptEncoder& encoder, text::TrainOn train_on,
                      std::int64_t embedding_rows) {
  EncodedRow out;
  if (const auto* tokens = std::get_if<TokensRow>(&row)) {
    check_token_range(*tokens, encoder.tokenizer().vocab_size(), embedding_rows);
    return {tokens->ids, tokens->labels};
  }
  if (const auto* document = std::get_if<DocumentRow>(&row)) {
    if (document->text.empty()) return out;
    out.ids = encoder.encode_document(document->text);
    out.labels = out.ids;
    return out;
  }
  const auto* instruction = std::get_if<text::Instruction>(&row);
  text::EncodedPrompt prompt = instruction != nullptr
                                   ? encoder.encode(*instruction, train_on)
                                   : encoder.encode(std::get<text::Conversation>(row), train_on);
  out.labels = prompt.ids;
  for (std::size_t t = 0; t < out.labels.size(); ++t)
    if (prompt.trained[t] == 0) out.labels[t] = kNoLabel;
  out.ids = std::move(prompt.ids);
  return out;
}

TokenRows tokenize_file(const RecordSource& file, Format format, const DataOptions& options,
                        const text::PromptEncoder& encoder, RowCounts& counts) {
  const RowEncoder row_encoder(file, format, options, encoder);
  std::vector<Chunk> chunks = run_chunks(file.size(), options.threads, row_encoder);
  TokenRows rows;
  for (Chunk& chunk : chunks) {
    if (chunk.error) std::rethrow_exception(chunk.error);
    rows.append(chunk.rows);
    counts += chunk.counts;
    chunk.rows = {};
  }
  if (rows.size() > 0) return rows;
  throw Error(
      "[data] no row of " + file.name() + " can be trained on: of " + std::to_string(counts.rows) + " rows " +
      std::to_string(counts.without_labels) + " have no token to learn (" + std::to_string(counts.truncated) +
      " of them cut by data.max_seq_len " + std::to_string(options.max_seq_len) + ") and " +
      std::to_string(counts.dropped) +
      " are longer than it and dropped; raise data.max_seq_len, or check the rows with `lorikeet preview`");
}

}  // namespace lorikeet::data
