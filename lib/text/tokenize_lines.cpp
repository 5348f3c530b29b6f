#include "text/tokenize_lines.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <istream>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lorikeet::text {
namespace {

constexpr std::size_t kBatchLines = 2048;

struct Item {
  std::string line;
  std::string result;
  std::exception_ptr error;
};

std::string ids_to_line(const std::vector<TokenId>& ids) {
  std::string out = "[";
  for (const TokenId id : ids) {
    if (out.size() > 1) out += ',';
    out += std::to_string(id);
  }
  return out + "]";
}

std::string encode_line(const Tokenizer& tokenizer, const JsonView& value,
                        const TokenizeLinesOptions& options) {
  EncodeOptions how;
  how.add_special_tokens = options.specials && !options.bos_eos;
  how.parse_special = options.parse_special;
  std::vector<TokenId> ids = tokenizer.encode(value.as_string(), how);
  if (options.bos_eos) {
    ids.insert(ids.begin(), *tokenizer.bos_id());
    ids.push_back(*tokenizer.eos_id());
  }
  return ids_to_line(ids);
}

std::string decode_line(const Tokenizer& tokenizer, const JsonView& value,
                        const TokenizeLinesOptions& options) {
  std::vector<TokenId> ids;
  for (const JsonView& id : value.items()) {
    if (id.as_int() < 0 || id.as_int() > INT32_MAX) id.fail("a token id");
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return Json(tokenizer.decode(ids, !options.specials)).dump();
}

void convert(const Tokenizer& tokenizer, Item& item, std::size_t number,
             const TokenizeLinesOptions& options) {
  try {
    const std::string where = "line " + std::to_string(number);
    const Json json = Json::parse(item.line, where);
    const JsonView value(json, where);
    item.result =
        options.decode ? decode_line(tokenizer, value, options) : encode_line(tokenizer, value, options);
  } catch (const std::exception&) {
    item.error = std::current_exception();
  }
}

}  // namespace

void tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                    const TokenizeLinesOptions& options) {
  if (options.bos_eos && !options.decode && (!tokenizer.bos_id() || !tokenizer.eos_id())) {
    throw Error("[tokenize] BOS and EOS are asked for, but the tokenizer names no " +
                std::string(tokenizer.bos_id() ? "EOS" : "BOS") + " token (tokenizer_config.json)");
  }
  std::size_t threads =
      options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<Item> batch;
  std::size_t done = 0;
  while (in) {
    batch.clear();
    for (std::string line; batch.size() < kBatchLines && std::getline(in, line);) {
      batch.push_back({std::move(line), {}, nullptr});
    }
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < batch.size(); i = next++) {
        convert(tokenizer, batch[i], done + i + 1, options);
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (std::size_t i = 1; i < std::min(threads, batch.size()); ++i) helpers.emplace_back(work);
      work();
    }
    for (const Item& item : batch) {
      if (item.error) {
        out.flush();
        std::rethrow_exception(item.error);
      }
      out << item.result << '\n';
    }
    done += batch.size();
  }
  out.flush();
}

}  // namespace lorikeet::text
