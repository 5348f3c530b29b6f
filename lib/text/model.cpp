#include "text/model.h"

#include "base/error.h"
#include "base/strings.h"
#include "text/models_json.h"

namespace lorikeet::text {

std::unique_ptr<Model> make_model(const JsonView& json, bool byte_pieces) {
  const std::string& type = json.at("type").as_string();
  if (type == "BPE") return make_bpe(json, byte_pieces);
  if (type == "Unigram") return make_unigram(json);
  throw Error("[" + json.where() + "] model of type '" + escape_control(type) +
              "' is not supported; expected BPE or Unigram");
}

}  // namespace lorikeet::text
