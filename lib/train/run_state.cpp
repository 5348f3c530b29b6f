#include "train/run_state.h"

namespace lorikeet::train {

Json RunState::json() const {
  Json json;
  json.set("step", step).set("elapsed_seconds", elapsed_seconds);
  if (best) json.set("best", Json().set("step", best->step).set("val_loss", best->val_loss));
  json.set("evaluations_since_best", evaluations_since_best);
  if (validation_pending) json.set("validation_pending", true);
  if (scaler) json.set("scaler", scaler->json());
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
  if (const auto pending = json.maybe("validation_pending")) state.validation_pending = pending->as_bool();
  if (const auto scaler = json.maybe("scaler")) state.scaler = GradientScaler::from_json(*scaler);
  return state;
}

}  // namespace lorikeet::train
