#include "models/loading.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "models/expert_stacks.h"
#include "models/quantization_config.h"
#include "models/quantized_weights.h"
#include "models/registry.h"
#include "models/staged_upload.h"
#include "models/tensor_pieces.h"
#include "ops/dtype.h"

namespace lorikeet::models {
namespace {

void require_same_finite(const std::string& name, const at::Tensor& source, const at::Tensor& target) {
  const auto finite = [](const at::Tensor& values) { return values.isfinite().sum().item<std::int64_t>(); };
  const std::int64_t lost = finite(source) - finite(target);
  if (lost == 0) return;
  const DType dtype = ops::from_torch(target.scalar_type());
  throw Error("[precision.base_storage] tensor '" + escape_control(name) + "' has " + std::to_string(lost) +
              " values beyond " + std::string(dtype_name(dtype)) + "'s largest, " +
              std::to_string(static_cast<std::int64_t>(dtype_largest(dtype))) +
              "; choose precision.preset=bf16 or fp32");
}

// Elements of a tensor that follow each other both in the file and in what is held here.
struct Range {
  std::int64_t in_file, in_held, count;

  std::int64_t file_end() const { return in_file + count; }
};

// What is held of a segment, in the order of the file, cut where a piece of `piece` elements of the file
// ends.
std::vector<Range> held_ranges(const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                               std::int64_t piece) {
  const std::int64_t rows = segment.shape.front();
  const std::int64_t width = rows == 0 ? 0 : c10::multiply_integers(segment.shape) / rows;
  std::vector<Range> ranges;
  for (const nn::RowRun& run : nn::row_runs(segment.order, rows)) {
    // From an element's place in group order, in which `held` counts, to its place in the file.
    const std::int64_t to_file = (run.module_row - run.group_row) * width;
    std::int64_t begin = std::max(run.group_row * width, held.first);
    const std::int64_t end = std::min((run.group_row + run.count) * width, held.first + held.values.numel());
    while (begin < end) {
      const std::int64_t in_file = begin + to_file;
      const std::int64_t count = std::min(end - begin, piece - in_file % piece);
      ranges.push_back({in_file, begin - held.first, count});
      begin += count;
    }
  }
  return ranges;
}

void convert_range(const io::TensorView& view, const Range& range, const at::Tensor& values,
                   StagedUpload& upload, std::vector<char>* scratch) {
  const std::size_t element = dtype_size(view.dtype);
  const std::string_view bytes = view.bytes.substr(static_cast<std::size_t>(range.in_file) * element,
                                                   static_cast<std::size_t>(range.count) * element);
  const at::Tensor source = flat_tensor(view.dtype, bytes, scratch);
  const at::Tensor converted = upload.copy(values.narrow(0, range.in_held, range.count), source);
  // fp32 to bf16 loses digits, not range: its largest value is near fp32's.
  const bool may_overflow =
      2 * dtype_largest(ops::from_torch(values.scalar_type())) < dtype_largest(view.dtype);
  if (may_overflow) require_same_finite(view.name, source, converted);
}

// Converts the elements of a tensor that are held here, piece by piece of the file, giving back the pages of
// each. Where there is a digest, adds the blocks that begin in what is held: every element is held by one
// process, so that all processes together add each block once, however rows are ordered.
void convert(const io::Checkpoint& checkpoint, const io::TensorView& view, const nn::WeightSegment& segment,
             const nn::WeightUnit::Held& held, StagedUpload& upload, io::TensorDigest* digest) {
  if (!held.values.defined()) return;
  const std::size_t element = dtype_size(view.dtype);
  const auto piece = static_cast<std::int64_t>(kPieceBytes / element);
  std::vector<char> scratch;
  const std::vector<Range> ranges = held_ranges(segment, held, piece);
  for (std::size_t first = 0, next = 0; first < ranges.size(); first = next) {
    // Ranges [first, next) adjoin in the file and lie in one piece of it: whole blocks, but for the ends.
    next = first + 1;
    while (next < ranges.size() && ranges[next].in_file == ranges[next - 1].file_end() &&
           ranges[next].in_file % piece != 0)
      ++next;
    const std::size_t begin = static_cast<std::size_t>(ranges[first].in_file) * element;
    const std::size_t end = static_cast<std::size_t>(ranges[next - 1].file_end()) * element;
    const std::size_t touched = digest != nullptr ? add_blocks(view, begin, end, digest) : end;
    for (std::size_t i = first; i < next; ++i) convert_range(view, ranges[i], held.values, upload, &scratch);
    io::TensorView done = view;
    done.bytes = view.bytes.substr(begin, touched - begin);
    checkpoint.drop_pages(done);
  }
}

// The numbers of a tensor that is quantised in the checkpoint, where they are held as such.
void convert_decoded(const io::Checkpoint& checkpoint, const io::TensorView& view,
                     const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                     StagedUpload& upload) {
  if (!held.values.defined()) return;
  const at::Tensor numbers = dequantized(checkpoint, view, segment.decoded_from->quantization()).flatten();
  for (const Range& range : held_ranges(segment, held, numbers.numel()))
    upload.copy(held.values.narrow(0, range.in_held, range.count),
                numbers.narrow(0, range.in_file, range.count));
}

bool is_head(const std::string& name, const nn::CausalLMSpec& spec) {
  const auto names = spec.checkpoint_names.in_files(spec.head.name + ".weight");
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Buffers that older writers saved although they follow from config.json, and the copy of a tied head.
bool is_derivable(const std::string& name, const nn::CausalLM& model) {
  return name.ends_with(".rotary_emb.inv_freq") || (model.shape().tied_head && is_head(name, model.spec()));
}

bool is_of_other_part(const std::string& name, const io::CheckpointNames& names) {
  return std::any_of(names.other_parts.begin(), names.other_parts.end(),
                     [&](const std::string& part) { return name.starts_with(part); });
}

// "name: expected ..., got ...", or "" where a tensor of the checkpoint fits. `any_quantized`:
// has_quantized's answer, for which it looks at all tensors.
std::string mismatch(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint,
                     const io::TensorView& view, bool any_quantized) {
  if (is_quantized(checkpoint, view)) return quantized_mismatch(segment, checkpoint, view);
  if (segment.quantized != nullptr && any_quantized) {
    return segment.name + ": expected " + short_name(segment.quantized->quantization()) +
           " as other linear weights have, got " + std::string(dtype_name(view.dtype)) +
           ", which config.json's quantization_config doesn't except";
  }
  if (view.shape != segment.shape) {
    return segment.name + ": expected " + io::shape_text(segment.shape) + ", got " +
           io::shape_text(view.shape);
  }
  if (!is_floating(view.dtype)) {
    return segment.name + ": expected a floating dtype, got " + std::string(dtype_name(view.dtype));
  }
  return "";
}

// Fills what the model holds; adds to `digests`, where given, what is this part's to hash.
void load(nn::CausalLM& model, const io::Checkpoint& checkpoint, const nn::WeightShard& shard,
          WeightDigests* digests) {
  StagedUpload upload;
  const bool any_quantized = has_quantized(checkpoint);
  for (const auto& unit : model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      const nn::WeightSegment& segment = unit->segments()[i];
      const io::TensorView* view = find_weight(checkpoint, model.spec().checkpoint_names, segment.name);
      if (view == nullptr) throw Error("[checkpoint] " + escape_control(segment.name) + " is missing");
      const std::string problem = mismatch(segment, checkpoint, *view, any_quantized);
      if (!problem.empty()) throw Error("[checkpoint] " + escape_control(problem));
      if (is_quantized(checkpoint, *view) && segment.quantized == nullptr) {
        if (digests != nullptr) digest_quantized(checkpoint, *view, segment, shard, *digests);
        convert_decoded(checkpoint, *view, segment, unit->held(i), upload);
        continue;
      }
      if (is_quantized(checkpoint, *view)) {
        copy_quantized(checkpoint, *view, segment, unit->held(i), shard, upload, digests);
        continue;
      }
      io::TensorDigest* digest = digests != nullptr ? &(*digests)[segment.name] : nullptr;
      const nn::WeightUnit::Held held = unit->held(i);
      at::Tensor copy;
      const io::TensorView dense = held.values.defined() ? dense_view(*view, &copy) : *view;
      // Every process holds all vectors: the first one hashes them, and what there is once of a tensor.
      if (digest != nullptr && shard.rank == 0) digest->add_header(dense);
      const bool own = segment.is_matrix() || shard.rank == 0;
      if (segment.quantized != nullptr) {
        quantize_weight(checkpoint, dense, segment, held, upload, digest);
      } else {
        convert(checkpoint, dense, segment, held, upload, own ? digest : nullptr);
      }
      if (copy.defined()) checkpoint.drop_pages(*view);
    }
  }
  upload.finish();
}

}  // namespace

const io::TensorView* find_weight(const io::Checkpoint& checkpoint, const io::CheckpointNames& names,
                                  const std::string& name) {
  for (const std::string& in_file : names.in_files(name)) {
    if (const io::TensorView* view = checkpoint.find(in_file)) return view;
  }
  return nullptr;
}

namespace {

constexpr std::size_t kShown = 6;  // of a list's names

// Of the tensor that holds it.
const std::string& name_in_file(const io::TensorView& view) { return view.part ? view.part->of : view.name; }

// Whether two tables of one shape hold the same numbers. Where their dtypes differ, one table may be the
// other one rounded to its dtype. Gives back the pages that it converts.
bool same_numbers(const io::Checkpoint& checkpoint, const io::TensorView& a, const io::TensorView& b) {
  if (a.dtype == b.dtype) return a.bytes == b.bytes;
  if (!is_floating(a.dtype) || !is_floating(b.dtype)) return false;
  const std::size_t elements = a.bytes.size() / dtype_size(a.dtype);
  const std::size_t count = kPieceBytes / std::max(dtype_size(a.dtype), dtype_size(b.dtype));
  std::vector<char> scratch_a, scratch_b;
  bool a_is_b_rounded = true, b_is_a_rounded = true;
  for (std::size_t first = 0; first < elements && (a_is_b_rounded || b_is_a_rounded); first += count) {
    const auto piece_of = [&](const io::TensorView& whole) {
      io::TensorView piece = whole;
      piece.bytes = whole.bytes.substr(first * dtype_size(whole.dtype), count * dtype_size(whole.dtype));
      return piece;
    };
    const io::TensorView piece_a = piece_of(a), piece_b = piece_of(b);
    const at::Tensor of_a = flat_tensor(a.dtype, piece_a.bytes, &scratch_a);
    const at::Tensor of_b = flat_tensor(b.dtype, piece_b.bytes, &scratch_b);
    a_is_b_rounded = a_is_b_rounded && at::equal(of_a, of_b.to(of_a.scalar_type()));
    b_is_a_rounded = b_is_a_rounded && at::equal(of_b, of_a.to(of_b.scalar_type()));
    checkpoint.drop_pages(piece_a);
    checkpoint.drop_pages(piece_b);
  }
  return a_is_b_rounded || b_is_a_rounded;
}

// "" unless config.json ties the head to the embedding and the file has another table for it: transformers
// before 5 takes no notice of that, from 5 on it takes the two apart.
std::string untied_head(const nn::CausalLM& model, const io::Checkpoint& checkpoint) {
  if (!model.shape().tied_head) return "";
  const nn::CausalLMSpec& spec = model.spec();
  const io::TensorView* table =
      find_weight(checkpoint, spec.checkpoint_names, spec.embedding_name + ".weight");
  const io::TensorView* head = find_weight(checkpoint, spec.checkpoint_names, spec.head.name + ".weight");
  if (table == nullptr || head == nullptr) return "";
  const bool same_shape = table->shape == head->shape;
  if (same_shape && same_numbers(checkpoint, *table, *head)) return "";
  return head->name + ": expected the numbers of " + table->name +
         ", since config.json has tie_word_embeddings true, got " +
         (same_shape ? "others" : io::shape_text(head->shape) + " for " + io::shape_text(table->shape)) +
         "; set it to false for a head of its own (as transformers 5 takes this checkpoint), or take the "
         "tensor out of the file";
}

// "" unless config.json has a quantization_config and no tensor is quantised, as transformers writes models
// that bitsandbytes doesn't reach. It computes with such numbers as they are.
std::string unquantized_throughout(const nn::CausalLM& model, const io::Checkpoint& checkpoint) {
  if (has_quantized(checkpoint) || !std::filesystem::exists(checkpoint.folder() / "config.json")) return "";
  const Json config = read_config_json(checkpoint.folder());
  const auto said = quantization_in_config(JsonView(config, "config.json"));
  const auto& units = model.store().units();
  const bool wanted = std::any_of(units.begin(), units.end(), [](const auto& unit) {
    const auto& segments = unit->segments();
    return std::any_of(segments.begin(), segments.end(),
                       [](const nn::WeightSegment& segment) { return segment.quantized != nullptr; });
  });
  if (!said || !wanted) return "";
  return "linear weights: expected " + short_name(*said) +
         ", since config.json has a quantization_config, got numbers in all of them; remove "
         "quantization_config from config.json to compute with these as they are, as transformers does";
}

// "model." where the file has a missing weight under its name without that: AutoModel, which has no head,
// saves all weights so. Else "".
std::string lacking_prefix(const LoadReport& report, const io::Checkpoint& checkpoint) {
  for (const std::string& name : report.missing) {
    const std::size_t behind = name.find('.') + 1;
    if (behind > 0 && checkpoint.find(std::string_view(name).substr(behind)) != nullptr)
      return name.substr(0, behind);
  }
  return "";
}

}  // namespace

LoadReport compare_weights(const nn::CausalLM& model, const io::Checkpoint& checkpoint) {
  LoadReport report;
  const io::CheckpointNames& names = model.spec().checkpoint_names;
  std::set<std::string> wanted;
  const bool any_quantized = has_quantized(checkpoint);
  for (const auto& unit : model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      const io::TensorView* view = find_weight(checkpoint, names, segment.name);
      if (view == nullptr) {
        report.missing.push_back(segment.name);
        continue;
      }
      wanted.insert(name_in_file(*view));
      for (const io::TensorView* companion : quantization_tensors(checkpoint, *view))
        wanted.insert(name_in_file(*companion));
      const std::string problem = mismatch(segment, checkpoint, *view, any_quantized);
      if (!problem.empty()) report.mismatched.push_back(problem);
    }
  }
  if (const std::string problem = untied_head(model, checkpoint); !problem.empty())
    report.mismatched.push_back(problem);
  if (const std::string problem = unquantized_throughout(model, checkpoint); !problem.empty())
    report.mismatched.push_back(problem);
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (!wanted.contains(name) && !is_derivable(name, model) && !is_of_other_part(name, names))
      report.unexpected.push_back(name);
  }
  return report;
}

void require_complete(const LoadReport& report, const io::Checkpoint& checkpoint) {
  const std::string where = "[model.path] '" + checkpoint.folder().string() + "'";
  if (!report.unexpected.empty()) {
    log_warning(where + " holds " + counted(report.unexpected.size(), "tensor") +
                " that this model has no use for: " + escape_control(join_some(report.unexpected, kShown)));
  }
  if (report.complete()) return;
  std::string message = where + " doesn't fit its config.json:";
  if (!report.missing.empty()) message += "\n  missing: " + join_some(report.missing, kShown);
  if (!report.mismatched.empty()) message += "\n  mismatched: " + join_some(report.mismatched, kShown);
  // Mistral 3's files don't have to say whether the head is tied: transformers looks for its tensor.
  if (report.missing.size() == 1 && report.missing.front() == "lm_head.weight") {
    message +=
        "\n  for a head that is the embedding set tie_word_embeddings to true in config.json "
        "(docs/families.md says where in a multimodal one)";
  }
  if (const std::string prefix = lacking_prefix(report, checkpoint); !prefix.empty()) {
    message += "\n  the file's names lack the prefix '" + prefix +
               "', as where AutoModel saved it; save the model with its head, by AutoModelForCausalLM (a "
               "multimodal one by AutoModelForImageTextToText)";
  }
  throw Error(escape_control(message));
}

void load_weights(nn::CausalLM& model, const io::Checkpoint& checkpoint) {
  load(model, checkpoint, {}, nullptr);
}

WeightDigests load_and_digest_weights(nn::CausalLM& model, const io::Checkpoint& checkpoint,
                                      const nn::WeightShard& shard) {
  WeightDigests digests;
  load(model, checkpoint, shard, &digests);
  return digests;
}

}  // namespace lorikeet::models
