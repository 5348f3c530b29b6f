#include "text/normalizer.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace lorikeet::text {
namespace {

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(NormalText& text) const override { normalize(text.text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalText& text) const override { text.text = to_lowercase(text.text); }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalText& text) const override {
    if (text.at_start && content_.empty()) {
      pattern_.for_each_match(text.text, [&](std::size_t begin, std::size_t end) {
        if (begin == 0 && end > 0) text.at_start = false;
      });
    }
    text.text = pattern_.replace(text.text, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalText& text) const override {
    std::string& s = text.text;
    std::size_t end = s.size();
    while (right_ && end > 0) {
      std::size_t before = end;
      if (!is_whitespace(previous_code_point(s, before))) break;
      end = before;
    }
    s.resize(end);
    std::size_t begin = 0;
    while (left_ && begin < s.size()) {
      std::size_t behind = begin;
      if (!is_whitespace(next_code_point(s, behind))) break;
      begin = behind;
    }
    if (begin > 0) text.at_start = false;
    s.erase(0, begin);
  }

 private:
  bool left_;
  bool right_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(NormalText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonView& json) {
  if (json.json().is_null()) return nullptr;
  const std::string& type = json.at("type").as_string();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNFC);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNFD);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNFKC);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNFKD);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").as_string());
  if (type == "Replace") {
    return std::make_unique<Replace>(read_pattern(json.at("pattern")), json.at("content").as_string());
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(json.at("strip_left").as_bool(), json.at("strip_right").as_bool());
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const JsonView& item : json.at("normalizers").items()) {
      if (auto step = make_normalizer(item)) steps.push_back(std::move(step));
    }
    return std::make_unique<Sequence>(std::move(steps));
  }
  throw Error("[" + json.where() + "] normalizer of type '" + escape_control(type) +
              "' is not supported; expected Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence or "
              "Strip");
}

}  // namespace lorikeet::text
