#include "data/message_trees.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

const Json* member(const Json& record, const char* key) {
  const Json* value = record.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const std::string& text_member(const Json& record, const char* key, const std::string& where) {
  const Json* value = member(record, key);
  if (value == nullptr || !value->is_string()) {
    throw Error(where + ": expected '" + key +
                "' to be a string, as in OpenAssistant's tables of messages, got " +
                (value == nullptr ? "none" : std::string(value->kind_name())));
  }
  return value->string();
}

class TreeRecords final : public RecordSource {
 public:
  explicit TreeRecords(std::unique_ptr<RecordSource> source) : source_(std::move(source)) {
    std::map<std::string, std::size_t> seen;
    std::map<std::string, Reply> best;  // of the replies to a message
    std::vector<std::pair<std::size_t, std::string>> roots;
    for (std::size_t row = 0; row < source_->size(); ++row) {
      const Json record = source_->parse(row);
      const std::string where = source_->where(row);
      const std::string id = text_member(record, "message_id", where);
      if (!seen.emplace(id, row).second) {
        throw Error(where + ": message_id '" + escape_control(id) + "' stands in an earlier row too");
      }
      const Json* deleted = member(record, "deleted");
      if (deleted != nullptr && deleted->is_bool() && deleted->boolean()) continue;
      if (member(record, "parent_id") == nullptr) {
        roots.emplace_back(row, id);
        continue;
      }
      const Json* rank = member(record, "rank");
      const double order = rank != nullptr && rank->is_number() ? rank->number() : HUGE_VAL;
      const Reply reply{order, row, id};
      const auto [found, added] = best.emplace(text_member(record, "parent_id", where), reply);
      if (!added && reply.rank < found->second.rank) found->second = reply;
    }
    for (const auto& [row, id] : roots) add_conversation(row, id, best);
    if (conversations_.empty())
      throw Error("[data] " + name() + " holds no message tree with an answer in it");
  }

  std::size_t size() const override { return conversations_.size(); }
  std::size_t line(std::size_t i) const override { return source_->line(conversations_[i].front()); }
  std::string where(std::size_t i) const override { return source_->where(conversations_[i].front()); }
  const std::string& name() const override { return source_->name(); }

  Json parse(std::size_t i) const override {
    Json::Array messages;
    for (const std::size_t row : conversations_[i]) {
      const Json record = source_->parse(row);
      Json message;
      message.set("role", is_answer(row) ? "assistant" : "user")
          .set("content", text_member(record, "text", source_->where(row)));
      messages.push_back(std::move(message));
    }
    return Json().set("messages", std::move(messages));
  }

 private:
  struct Reply {
    double rank;
    std::size_t row;
    std::string id;
  };

  bool is_answer(std::size_t row) const {
    const Json record = source_->parse(row);
    const std::string& role = text_member(record, "role", source_->where(row));
    if (role == "assistant") return true;
    if (role == "prompter") return false;
    throw Error(source_->where(row) + ": expected the role prompter or assistant, got '" +
                escape_control(role.substr(0, 60)) + "'");
  }

  void add_conversation(std::size_t root, const std::string& id, const std::map<std::string, Reply>& best) {
    std::vector<std::size_t> rows{root};
    std::size_t answered = 0;  // rows up to the last answer
    // Every message is the reply to one other, so a path from a prompt can't come back to itself.
    for (auto next = best.find(id); next != best.end(); next = best.find(next->second.id)) {
      rows.push_back(next->second.row);
      if (is_answer(rows.back())) answered = rows.size();
    }
    rows.resize(answered);
    if (!rows.empty()) conversations_.push_back(std::move(rows));
  }

  std::unique_ptr<RecordSource> source_;
  std::vector<std::vector<std::size_t>> conversations_;  // the rows of each
};

}  // namespace

std::unique_ptr<RecordSource> conversations_of_trees(std::unique_ptr<RecordSource> source) {
  return std::make_unique<TreeRecords>(std::move(source));
}

}  // namespace lorikeet::data
