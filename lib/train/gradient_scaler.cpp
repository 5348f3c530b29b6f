#include "train/gradient_scaler.h"

#include <algorithm>
#include <cmath>

namespace lorikeet::train {

bool GradientScaler::update(bool finite) {
  if (finite) {
    if (++good_steps_ < kGrowthInterval) return true;
    scale_ = std::min(2 * scale_, kLargestScale);
    good_steps_ = 0;
    return true;
  }
  if (scale_ <= 1) return false;
  scale_ /= 2;
  good_steps_ = 0;
  ++skipped_;
  return true;
}

Json GradientScaler::json() const {
  return Json().set("scale", scale_).set("good_steps", good_steps_).set("skipped", skipped_);
}

GradientScaler GradientScaler::from_json(const JsonView& json) {
  GradientScaler scaler;
  scaler.scale_ = json.at("scale").as_number();
  scaler.good_steps_ = json.at("good_steps").as_int();
  scaler.skipped_ = json.at("skipped").as_int();
  int exponent = 0;
  if (std::frexp(scaler.scale_, &exponent) != 0.5 || scaler.scale_ < 1 || scaler.scale_ > kLargestScale) {
    json.at("scale").fail("a power of two from 1 to 2^24");
  }
  if (scaler.good_steps_ < 0 || scaler.good_steps_ >= kGrowthInterval) {
    json.at("good_steps").fail("0 to " + std::to_string(kGrowthInterval - 1));
  }
  if (scaler.skipped_ < 0) json.at("skipped").fail("a count");
  return scaler;
}

}  // namespace lorikeet::train
