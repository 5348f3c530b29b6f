#include "recipes/prompts.h"

#include <algorithm>
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
  // Every answer is asked for but where only the last is learnt; the question is never a part of it.
  const text::TrainOn asked =
      options.train_on == text::TrainOn::kLast ? text::TrainOn::kLast : text::TrainOn::kRoles;
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < count; ++i) {
    const data::Row row = data::parse_row(records.parse(i), plan.format, plan.columns, records.where(i));
    const data::EncodedRow encoded = data::encode_row(row, encoder, asked, options.embedding_rows);
    const auto first = std::find_if(encoded.labels.begin(), encoded.labels.end(),
                                    [](std::int32_t label) { return label != data::kNoLabel; });
    const auto given = first - encoded.labels.begin();
    if (first == encoded.labels.end() || given == 0) {
      throw Error(records.where(i) + ": expected a question and an answer, found no " +
                  (given == 0 ? "question" : "answer"));
    }
    prompts.push_back({shown_question(row),
                       {encoded.ids.begin(), encoded.ids.begin() + given},
                       {encoded.ids.begin() + given, encoded.ids.end()}});
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
