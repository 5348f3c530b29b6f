#include "train/run_state.h"

namespace lorikeet::train {

Json RunState::json() const {
  Json json;
  json.set("step", step).set("elapsed_seconds", elapsed_seconds);
  if (best) json.set("best", Json().set("step", best->step).set("val_loss", best->val_loss));
  json.set("evaluations_since_best", evaluations_since_best);
  json.set("config_fingerprint", config_fingerprint);
  json.set("data_fingerprint", data_fingerprint);
  json.set("policy_fingerprint", policy_fingerprint);
  return json;
}

RunState RunState::from_json(const JsonView& json) {
  RunState state;
  state.step = json.at("step").as_int();
  state.elapsed_seconds = json.at("elapsed_seconds").as_number();
  if (const auto best = json.maybe("best")) {
    state.best = Best{best->at("step").as_int(), best->at("val_loss").as_number()};
  }
  state.evaluations_since_best = json.at("evaluations_since_best").as_int();
  state.config_fingerprint = json.at("config_fingerprint").as_string();
  state.data_fingerprint = json.at("data_fingerprint").as_string();
  state.policy_fingerprint = json.at("policy_fingerprint").as_string();
  return state;
}

}  // namespace lorikeet::train
