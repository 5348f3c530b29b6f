#include "data/tokenize.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kRowsPerChunk = 64;
constexpr std::size_t kMostReadyBytes = std::size_t{16} << 20;  // encoded, before their turn

bool is_empty_answer(const text::Message& message) {
  const auto has = [&](std::string_view member) { return message.extra.find(member) != nullptr; };
  return message.role == "assistant" && message.trained && is_blank(message.content) && !has("tool_calls") &&
         std::none_of(text::kReasoningNames.begin(), text::kReasoningNames.end(), has);
}

bool has_empty_answer(const Row& row) {
  if (const auto* instruction = std::get_if<text::Instruction>(&row)) return is_blank(instruction->output);
  if (const auto* conversation = std::get_if<text::Conversation>(&row))
    return std::any_of(conversation->messages.begin(), conversation->messages.end(), is_empty_answer);
  return false;
}

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
    if (has_empty_answer(row)) ++counts.empty_answers;
    if (encoded.leaves_out_something) ++counts.incomplete;
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
};

/// Encodes a file's rows in chunks on several threads, and hands them on in order.
///
/// Chunks are taken in order and each ends at its first error, so all rows before the first error of the
/// lowest chunk that has one were fine: the error reported doesn't depend on the number of threads.
class ChunkRunner {
 public:
  ChunkRunner(const RecordSource& file, const RowEncoder& encoder, const TokenSink& sink)
      : file_(file), encoder_(encoder), sink_(sink) {}

  /// Returns what became of the rows, and how many examples there are.
  std::pair<RowCounts, std::size_t> run(unsigned threads) {
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> helpers;
    const std::size_t wanted = std::min<std::size_t>(threads, chunks());
    for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back([this] { work(); });
    work();
    for (std::thread& helper : helpers) helper.join();
    if (error_) std::rethrow_exception(error_);
    return {counts_, examples_};
  }

 private:
  std::size_t chunks() const { return (file_.size() + kRowsPerChunk - 1) / kRowsPerChunk; }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      // Every chunk below `taken_` is with some thread or in `ready_`. So the one that is to be handed on
      // next comes without anybody who waits here, as nothing is ready while nobody has taken it.
      room_.wait(lock, [&] { return error_ || ready_bytes_ < kMostReadyBytes; });
      if (error_ || taken_ == chunks()) return;
      const std::size_t number = taken_++;
      lock.unlock();
      Chunk chunk;
      std::exception_ptr error;
      try {
        const std::size_t end = std::min(file_.size(), (number + 1) * kRowsPerChunk);
        for (std::size_t i = number * kRowsPerChunk; i < end; ++i)
          encoder_.encode(i, chunk.rows, chunk.counts);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        fail(number, error);
        continue;
      }
      ready_bytes_ += chunk.rows.bytes();
      ready_.emplace(number, std::move(chunk));
      if (!handing_on_) hand_on(lock);
    }
  }

  void fail(std::size_t chunk, std::exception_ptr error) {
    if (!error_ || chunk < failed_chunk_) {
      error_ = std::move(error);
      failed_chunk_ = chunk;
    }
    room_.notify_all();
  }

  // Gives the sink what is ready and next, one thread at a time; others go on encoding.
  void hand_on(std::unique_lock<std::mutex>& lock) {
    handing_on_ = true;
    while (!error_ && !ready_.empty() && ready_.begin()->first == handed_on_) {
      Chunk chunk = std::move(ready_.begin()->second);
      ready_.erase(ready_.begin());
      ready_bytes_ -= chunk.rows.bytes();
      counts_ += chunk.counts;
      examples_ += chunk.rows.size();
      const std::size_t number = handed_on_++;
      lock.unlock();
      room_.notify_all();
      std::exception_ptr error;
      try {
        if (chunk.rows.size() > 0) sink_(chunk.rows);
        file_.release_before(number * kRowsPerChunk);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) fail(number, error);
    }
    handing_on_ = false;
  }

  const RecordSource& file_;
  const RowEncoder& encoder_;
  const TokenSink& sink_;

  std::mutex mutex_;  // of all below
  std::condition_variable room_;
  std::size_t taken_ = 0;
  std::size_t handed_on_ = 0;
  bool handing_on_ = false;
  std::map<std::size_t, Chunk> ready_;
  std::size_t ready_bytes_ = 0;
  std::exception_ptr error_;
  std::size_t failed_chunk_ = 0;
  RowCounts counts_;
  std::size_t examples_ = 0;
};

[[noreturn]] void fail_without_examples(const RecordSource& file, const RowCounts& counts,
                                        const DataOptions& options) {
  throw Error("[data] no row of " + file.name() + " can be trained on: of " + counted(counts.rows, "row") +
              " " + std::to_string(counts.without_labels) + " have no token to learn (" +
              std::to_string(counts.truncated) + " of them cut by data.max_seq_len " +
              std::to_string(options.max_seq_len) + ") and " + std::to_string(counts.dropped) +
              " are longer than it and dropped; " +
              (counts.truncated + counts.dropped > 0
                   ? "raise data.max_seq_len"
                   : "an answer is what is learnt: a turn of the assistant, labels that aren't -100"));
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
  empty_answers += other.empty_answers;
  incomplete += other.incomplete;
  return *this;
}

EncodedRow encode_row(const Row& row, const text::PromptEncoder& encoder, text::TrainOn train_on,
                      std::int64_t embedding_rows) {
  EncodedRow out;
  if (const auto* tokens = std::get_if<TokensRow>(&row)) {
    check_token_range(*tokens, encoder.tokenizer().vocab_size(), embedding_rows);
    return {.ids = tokens->ids, .labels = tokens->labels};
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
  out.leaves_out_something = prompt.leaves_out_something;
  return out;
}

RowCounts tokenize_file(const RecordSource& file, Format format, const DataOptions& options,
                        const text::PromptEncoder& encoder, const TokenSink& sink) {
  const RowEncoder row_encoder(file, format, options, encoder);
  const auto [counts, examples] = ChunkRunner(file, row_encoder, sink).run(options.threads);
  if (examples > 0) return counts;
  fail_without_examples(file, counts, options);
}

TokenRows encode_some(const RecordSource& file, Format format, const DataOptions& options,
                      const text::PromptEncoder& encoder, std::size_t most, RowCounts& counts) {
  const RowEncoder row_encoder(file, format, options, encoder);
  const std::size_t first = std::min(file.size(), most / 2);
  const std::size_t spread = std::min(file.size() - first, most - first);
  TokenRows examples;
  for (std::size_t i = 0; i < first; ++i) row_encoder.encode(i, examples, counts);
  for (std::size_t k = 1; k <= spread; ++k)
    row_encoder.encode(first - 1 + k * (file.size() - first) / spread, examples, counts);
  if (examples.size() == 0 && first + spread == file.size()) fail_without_examples(file, counts, options);
  return examples;
}

}  // namespace lorikeet::data
