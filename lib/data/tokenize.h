#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/format.h"
#include "data/options.h"
#include "data/parse_row.h"
#include "data/record_source.h"
#include "data/token_rows.h"
#include "text/prompt_encoder.h"

namespace lorikeet::data {

/// What became of a file's rows.
struct RowCounts {
  std::int64_t rows = 0;       ///< in the file
  std::int64_t truncated = 0;  ///< cut to max_seq_len
  std::int64_t dropped = 0;    ///< left out: longer than max_seq_len
  std::int64_t without_labels =
      0;                          ///< left out: nothing to learn (nothing is left of the answer, or none was)
  std::int64_t split = 0;         ///< texts that were split into consecutive chunks
  std::int64_t unknown_ids = 0;   ///< ids given as tokens that the model has and the tokenizer hasn't
  std::int64_t other_length = 0;  ///< left out: fewer or more tokens than RowOptions allow
  std::int64_t duplicates = 0;    ///< examples left out: equal to an earlier one
  std::int64_t empty_answers = 0;  ///< with an answer without text, which teaches to say nothing
  std::int64_t incomplete = 0;     ///< with something that the chat template doesn't write

  RowCounts& operator+=(const RowCounts& other);
  bool operator==(const RowCounts&) const = default;
};

/// Ids and labels of one row (labels unshifted, kNoLabel = no loss), before max_seq_len is applied.
///
/// Instructions and conversations go through the encoder's template; the tokens that `train_on` names have
/// labels. A text is BOS, text, EOS with labels throughout. Tokens
/// are taken as they are; ids and labels from `embedding_rows` on (0: from the tokenizer's vocabulary size
/// on) are an Error.
struct EncodedRow {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  bool leaves_out_something = false;  ///< see text::EncodedPrompt
};
EncodedRow encode_row(const Row& row, const text::PromptEncoder& encoder, text::TrainOn train_on,
                      std::int64_t embedding_rows = 0);

/// Takes the examples of the next rows of a file.
using TokenSink = std::function<void(const TokenRows& rows)>;

/// Parses, renders and encodes all records of `file` on `options.threads` threads, and gives the examples to
/// `sink` in the file's order whatever the number of threads, some rows at a time, never two calls at once.
/// What waits for its turn is bounded: memory doesn't grow with the file. The encoder may have no template
/// for formats that need none. Throws the Error of the first row that has one, or what the sink threw; and an
/// Error when no row is left, saying where they went. A sink that has seen rows is to be given up then.
RowCounts tokenize_file(const RecordSource& file, Format format, const DataOptions& options,
                        const text::PromptEncoder& encoder, const TokenSink& sink);

/// Does the same with at most `most` of the rows, the first ones and others spread evenly over the file, and
/// returns their examples and counts. Throws the Error of the first of them that has one, and, where these
/// are all rows, for want of any that is left.
TokenRows encode_some(const RecordSource& file, Format format, const DataOptions& options,
                      const text::PromptEncoder& encoder, std::size_t most, RowCounts& counts);

}  // namespace lorikeet::data
