#include "recipes/prompts.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "base/error.h"
#include "data/load.h"
#include "data/parse_row.h"
#include "data/record_source.h"
#include "data/row_plan.h"
#include "data/tokenize.h"

namespace lorikeet::recipes {
namespace {

// Where the last run of tokens that are trained on begins and ends; both are 0 where there is none.
struct Span {
  std::ptrdiff_t begin = 0, end = 0;
};

Span last_answer(const std::vector<std::int32_t>& labels) {
  const auto is_trained = [](std::int32_t label) { return label != data::kNoLabel; };
  const auto last = std::find_if(labels.rbegin(), labels.rend(), is_trained);
  const auto before = std::find_if_not(last, labels.rend(), is_trained);
  return {labels.rend() - before, labels.rend() - last};
}

// What a person would call the question of a row.
std::string shown_question(const data::Row& row) {
  if (const auto* instruction = std::get_if<text::Instruction>(&row)) {
    return instruction->input.empty() ? instruction->instruction
                                      : instruction->instruction + "\n" + instruction->input;
  }
  if (const auto* conversation = std::get_if<text::Conversation>(&row)) {
    std::string last;
    for (const text::Message& m : conversation->messages) {
      if (m.role == "user") last = m.content;
    }
    return last;
  }
  return "";
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file, const data::DataOptions& options,
                                 const text::Tokenizer& tokenizer, std::size_t limit, std::string* used) {
  const std::unique_ptr<data::RecordSource> source = data::open_source(file, options);
  const data::RecordSource& records = *source;
  const data::RowPlan plan = data::plan_rows(records, options, tokenizer);
  if (used != nullptr) *used = plan.chat_template.description;
  const text::PromptEncoder encoder(plan.chat_template, tokenizer);
  const std::size_t count = limit == 0 ? records.size() : std::min(limit, records.size());
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < count; ++i) {
    const data::Row row = data::parse_row(records.parse(i), plan.format, plan.columns, records.where(i));
    const data::EncodedRow encoded =
        data::encode_row(row, encoder, text::TrainOn::kLast, options.embedding_rows);
    const auto [begin, end] = last_answer(encoded.labels);
    if (begin == 0) {
      throw Error(records.where(i) + ": expected a question and an answer, found no " +
                  (end == 0 ? "answer" : "question"));
    }
    prompts.push_back({shown_question(row),
                       {encoded.ids.begin(), encoded.ids.begin() + begin},
                       {encoded.ids.begin() + begin, encoded.ids.begin() + end}});
  }
  return prompts;
}

Prompt make_prompt(const std::string& question, const std::string& system, text::RowKind kind,
                   const text::PromptEncoder& encoder) {
  std::vector<text::Message> earlier;
  if (!system.empty()) earlier.push_back({"system", system});
  if (kind == text::RowKind::kInstruction)
    return {.shown = question, .ids = encoder.question(text::Instruction{question, "", "", earlier})};
  text::Conversation conversation{std::move(earlier)};
  conversation.messages.push_back({"user", question});
  return {.shown = question, .ids = encoder.question(conversation)};
}

}  // namespace lorikeet::recipes
