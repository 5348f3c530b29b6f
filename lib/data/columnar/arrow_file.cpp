#include "data/columnar/arrow_file.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace lorikeet::data::columnar {
namespace {

constexpr std::string_view kMagic = "ARROW1";
constexpr std::size_t kMessagesBegin = 8;  // of a file: the magic, padded
constexpr std::size_t kBlockBytes = 24;    // of the footer: where a part lies

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error("[data] '" + name + "': " + what + "; the file is damaged, fetch or write it again");
}

struct Footer {
  std::uint32_t bytes = 0;
  std::size_t parts = 0;
};

// A file has a stream in front of its footer.
Footer read_footer(std::string_view file, const std::string& name) {
  const std::size_t end = kMagic.size() + sizeof(std::uint32_t);
  if (file.size() < kMessagesBegin + end || !file.ends_with(kMagic))
    fail(name, "the file is cut short: Arrow's footer is missing");
  Footer footer;
  std::memcpy(&footer.bytes, file.data() + file.size() - end, sizeof footer.bytes);
  if (footer.bytes > file.size() - kMessagesBegin - end) fail(name, "the footer is longer than the file");
  const std::string_view table = file.substr(file.size() - end - footer.bytes, footer.bytes);
  footer.parts = FlatTable::root(table, name).vector(3, kBlockBytes).size();
  return footer;
}

// The column with the dictionary `number`, or null.
const ArrowField* find_coded(const std::vector<ArrowField>& fields, std::int64_t number) {
  for (const ArrowField& field : fields) {
    if (field.dictionary == number) return &field;
    if (const ArrowField* inside = find_coded(field.children, number)) return inside;
  }
  return nullptr;
}

}  // namespace

ArrowFile::ArrowFile(FileBytes file, std::shared_ptr<ChunkCache> cache)
    : TableFile(std::move(file), std::move(cache)),
      dictionaries_(std::make_shared<const ArrowDictionaries>()) {
  const bool is_file = bytes().starts_with(kMagic);
  std::string_view messages = bytes();
  std::size_t parts = 0;
  if (is_file) {
    const Footer footer = read_footer(messages, name());
    parts = footer.parts;
    messages.remove_suffix(kMagic.size() + sizeof footer.bytes + footer.bytes);
  }
  std::size_t place = is_file ? kMessagesBegin : 0;
  bool has_schema = false;
  while (const auto message = read_arrow_message(messages, place, name())) {
    place = message->end;
    if (message->kind == ArrowMessage::Kind::kSchema) {
      if (has_schema) fail(name(), "it has two schemas");
      columns_ = read_arrow_schema(message->header, name());
      has_schema = true;
      continue;
    }
    if (!has_schema) fail(name(), "it doesn't begin with a schema");
    if (message->kind == ArrowMessage::Kind::kDictionary) {
      read_dictionary(*message);
    } else if (message->kind == ArrowMessage::Kind::kBatch) {
      const ArrowBatch batch = read_arrow_batch(message->header, message->body, name());
      parts_.push_back({*message, dictionaries_});
      add_chunk(static_cast<std::size_t>(batch.rows));
    }
  }
  if (is_file && parts_.size() != parts)
    fail(name(),
         "its footer says " + std::to_string(parts) + " parts, it has " + std::to_string(parts_.size()));
  require_rows();
}

void ArrowFile::read_dictionary(const ArrowMessage& message) {
  const auto number = message.header.number<std::int64_t>(0, 0);
  const auto content = message.header.table(1);
  const ArrowField* column = find_coded(columns_, number);
  if (!content || column == nullptr) fail(name(), "it has a dictionary that no column uses");
  if (!column->kind || !may_be_dictionary(*column->kind)) return;
  ArrowField plain = *column;
  plain.dictionary.reset();
  Array rows = read_arrow_rows({plain}, read_arrow_batch(*content, message.body, name()), {}, name());
  auto values = std::make_shared<Array>(std::move(rows.children.at(0)));
  auto changed = std::make_shared<ArrowDictionaries>(*dictionaries_);
  const bool is_delta = message.header.number<std::uint8_t>(2, 0) != 0;
  if (const auto before = changed->find(number); is_delta && before != changed->end()) {
    auto longer = std::make_shared<Array>(*before->second);
    append_values(*longer, *values);
    values = std::move(longer);
  }
  (*changed)[number] = std::move(values);
  dictionaries_ = std::move(changed);
}

Array ArrowFile::decode(std::size_t chunk) const {
  const Part& part = parts_[chunk];
  const ArrowBatch batch = read_arrow_batch(part.message.header, part.message.body, name());
  release();  // of parts before; this one's texts are read in place
  return read_arrow_rows(columns_, batch, *part.dictionaries, name());
}

}  // namespace lorikeet::data::columnar
