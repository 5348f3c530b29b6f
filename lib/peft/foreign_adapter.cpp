#include "peft/foreign_adapter.h"

#include <ATen/ATen.h>

#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "config/yaml.h"
#include "io/torch_archive.h"
#include "ops/dtype.h"
#include "peft/adapter_folder.h"
#include "peft/tensor_bytes.h"

namespace lorikeet::peft {
namespace {

// Names inside a layer, theirs -> the checkpoint's: torchtune 0.6.1's models/convert_weights.py (Qwen3's:
// models/qwen3/_convert_weights.py of torchtune's main), litgpt 0.5.9's scripts/convert_hf_checkpoint.py.
using Names = std::map<std::string, std::string, std::less<>>;
const Names& torchtune_names() {
  static const Names kNames{{"attn.q_proj", "self_attn.q_proj"}, {"attn.k_proj", "self_attn.k_proj"},
                            {"attn.v_proj", "self_attn.v_proj"}, {"attn.output_proj", "self_attn.o_proj"},
                            {"mlp.w1", "mlp.gate_proj"},         {"mlp.w3", "mlp.up_proj"},
                            {"mlp.w2", "mlp.down_proj"}};
  return kNames;
}
const Names& litgpt_names() {
  static const Names kNames{{"attn.qkv", "self_attn.qkv_proj"},
                            {"attn.proj", "self_attn.o_proj"},
                            {"mlp.fc_1", "mlp.gate_proj"},
                            {"mlp.fc_2", "mlp.up_proj"},
                            {"mlp.proj", "mlp.down_proj"}};
  return kNames;
}

struct Base {
  std::string model_type;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool is_fused = false;   ///< q, k, v and gate, up are one module each
  bool is_turned = false;  ///< torchtune has the rows of q and k in Meta's order
  bool torchtune_knows = false;
};

Base read_base(const JsonView& config) {
  Base base;
  base.model_type = config.at("model_type").as_string();
  static const std::set<std::string> kBoth{"llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3", "phi3"};
  static const std::set<std::string> kTurned{"llama", "mistral", "gemma", "gemma2"};
  static const std::set<std::string> kLitgpt{"olmo2", "gemma3_text"};
  base.torchtune_knows = kBoth.contains(base.model_type);
  if (!base.torchtune_knows && !kLitgpt.contains(base.model_type)) {
    throw Error(
        "[adapters] adapters of other trainers are read for the families llama, mistral, gemma, gemma2, "
        "gemma3_text, qwen2, qwen3, olmo2 and phi3, got '" +
        escape_control(base.model_type) + "'");
  }
  base.is_fused = base.model_type == "phi3";
  base.is_turned = kTurned.contains(base.model_type);
  base.heads = config.at("num_attention_heads").as_int();
  const auto number = [&](const char* key, std::int64_t absent) {
    const auto value = config.maybe(key);
    return value ? value->as_int() : absent;
  };
  base.kv_heads = number("num_key_value_heads", base.heads);
  if (base.heads < 1 || base.kv_heads < 1) throw Error("[adapters] config.json has no number of heads");
  base.head_dim = number("head_dim", config.at("hidden_size").as_int() / base.heads);
  if (base.head_dim < 2 || base.head_dim % 2 != 0) throw Error("[adapters] config.json has an odd head_dim");
  return base;
}

/// The parts of one module of theirs.
struct Part {
  at::Tensor a, b, magnitude;  // fp64
};

class ForeignReader {
 public:
  ForeignReader(const std::filesystem::path& file, Base base, const ForeignScale& scale)
      : archive_(io::TorchArchive::open(file)), file_(file), base_(std::move(base)), scale_(scale) {}

  AdapterContents read() {
    for (const io::TensorView& tensor : archive_.tensors()) take(tensor);
    if (parts_.empty()) fail("holds no tensor of a LoRA adapter of torchtune's or litgpt's");
    for (auto& [name, part] : parts_) add(name, std::move(part));
    fuse("self_attn.qkv_proj", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
         {q_rows(), kv_rows(), kv_rows()});
    fuse("mlp.gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"}, {});
    contents_.config.target_modules = contents_.names();
    return std::move(contents_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("[adapters] '" + escape_control(file_.filename().string()) + "' " + what);
  }

  std::int64_t q_rows() const { return base_.heads * base_.head_dim; }
  std::int64_t kv_rows() const { return base_.kv_heads * base_.head_dim; }

  void take(const io::TensorView& tensor) {
    std::string_view name = tensor.name;
    if (name.starts_with("model.")) name.remove_prefix(6);
    static constexpr std::array<std::pair<std::string_view, int>, 5> kEnds{
        {{".lora_a.weight", 0}, {".lora_b.weight", 1}, {".magnitude", 2}, {".lora_A", 0}, {".lora_B", 1}}};
    for (const auto& [end, which] : kEnds) {
      if (!name.ends_with(end)) continue;
      const bool litgpt = end.find('A') != std::string_view::npos || end.find('B') != std::string_view::npos;
      if (!parts_.empty() && litgpt != is_litgpt_) fail("mixes names of torchtune's and of litgpt's");
      is_litgpt_ = litgpt;
      const at::Tensor value = at::empty(tensor.shape, ops::to_torch(DType::kF64));
      copy_into({tensor.name, tensor.dtype, tensor.shape}, tensor.bytes, value, file_.string());
      require_finite(value, tensor.name, file_);
      if (value.dim() != (which == 2 ? 1 : 2)) fail("has a tensor '" + tensor.name + "' of another shape");
      contents_.dtype = parts_.empty() ? tensor.dtype : widest(contents_.dtype, tensor.dtype);
      Part& part = parts_[std::string(name.substr(0, name.size() - end.size()))];
      (which == 0 ? part.a : which == 1 ? part.b : part.magnitude) = value;
      return;
    }
    fail("has a tensor '" + escape_control(tensor.name) + "', which is no part of a LoRA adapter");
  }

  // "layers.3.attn.q_proj" -> {"model.layers.3.", "self_attn.q_proj"}
  std::pair<std::string, std::string> place_of(const std::string& name) const {
    if (name == "output" || name == "lm_head") return {"", "lm_head"};
    const std::string_view prefix = is_litgpt_ ? "transformer.h." : "layers.";
    if (name.starts_with(prefix)) {
      const std::size_t dot = name.find('.', prefix.size());
      const std::string layer = name.substr(prefix.size(), dot - prefix.size());
      std::int64_t number = -1;
      const auto [end, error] = std::from_chars(layer.data(), layer.data() + layer.size(), number);
      const Names& names = is_litgpt_ ? litgpt_names() : torchtune_names();
      const auto known = dot == std::string::npos ? names.end() : names.find(name.substr(dot + 1));
      if (error == std::errc() && end == layer.data() + layer.size() && number >= 0 && known != names.end())
        return {"model.layers." + std::to_string(number) + ".", known->second};
    }
    fail("has an adapter of '" + escape_control(name) + "', which isn't known here");
  }

  void add(const std::string& name, Part part) {
    if (!part.a.defined() || !part.b.defined())
      fail("has one factor of '" + escape_control(name) + "' alone");
    if (!is_litgpt_ && !base_.torchtune_knows)
      fail("is torchtune's, which doesn't know the family " + base_.model_type);
    const auto [layer, module] = place_of(name);
    if (module == "self_attn.qkv_proj") return split_qkv(layer, std::move(part));
    if (part.a.size(0) != part.b.size(1)) fail("has factors of two ranks in '" + escape_control(name) + "'");
    const bool is_q = module == "self_attn.q_proj", is_k = module == "self_attn.k_proj";
    if (is_q || is_k || module == "self_attn.v_proj") require_rows(part.b, is_q ? q_rows() : kv_rows(), name);
    if (!is_litgpt_ && base_.is_turned && (is_q || is_k)) {
      const std::int64_t heads = is_q ? base_.heads : base_.kv_heads;
      part.b = turned_back(part.b, heads);
      if (part.magnitude.defined()) part.magnitude = turned_back(part.magnitude, heads);
    }
    put(layer + module, std::move(part));
  }

  void require_rows(const at::Tensor& b, std::int64_t rows, const std::string& name) const {
    if (b.size(0) != rows)
      fail("has " + std::to_string(b.size(0)) + " outputs in '" + escape_control(name) +
           "', config.json says " + std::to_string(rows));
  }

  // Meta's order has the two features that turn together beside each other, Hugging Face's half a head apart.
  at::Tensor turned_back(const at::Tensor& rows, std::int64_t heads) const {
    return rows.reshape({heads, base_.head_dim / 2, 2, -1})
        .transpose(1, 2)
        .reshape(rows.sizes())
        .contiguous();
  }

  // litgpt stacks the As of those of q, k and v that have an adapter, and their Bs, in this order.
  void split_qkv(const std::string& layer, const Part& part) {
    const std::array<std::pair<const char*, bool>, 3> members{
        {{"q_proj", scale_.query}, {"k_proj", scale_.key}, {"v_proj", scale_.value}}};
    std::int64_t count = 0, rows = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      count += members[m].second ? 1 : 0;
      rows += members[m].second ? (m == 0 ? q_rows() : kv_rows()) : 0;
    }
    const std::int64_t rank = part.b.size(1);
    if (part.a.size(0) != count * rank || part.b.size(0) != rows)
      fail("has other factors of q, k and v in '" + layer +
           "' than hyperparameters.yaml and config.json say");
    std::int64_t a_begin = 0, b_begin = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (!members[m].second) continue;
      const std::int64_t out = m == 0 ? q_rows() : kv_rows();
      put(layer + "self_attn." + members[m].first,
          {part.a.narrow(0, a_begin, rank).contiguous(), part.b.narrow(0, b_begin, out).contiguous(), {}});
      a_begin += rank;
      b_begin += out;
    }
  }

  void put(const std::string& name, Part part) {
    const auto rank = static_cast<double>(part.a.size(0));
    contents_.config.use_dora = contents_.config.use_dora || part.magnitude.defined();
    contents_.modules[name] = {.alpha = scale_.alpha,
                               .update = {std::move(part.a), std::move(part.b), scale_.alpha / rank},
                               .magnitude = std::move(part.magnitude)};
  }

  // Puts the modules `members` of each layer together as the one that the checkpoint has instead. `rows` are
  // those of each; empty: as many of each as those that are there have.
  void fuse(const std::string& whole, const std::vector<std::string>& members,
            std::vector<std::int64_t> rows) {
    if (!base_.is_fused) return;
    std::map<std::string, std::vector<AdapterModule>> layers;
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (auto it = contents_.modules.begin(); it != contents_.modules.end();) {
        if (!it->first.ends_with(members[m])) {
          ++it;
          continue;
        }
        auto& found = layers[it->first.substr(0, it->first.size() - members[m].size())];
        found.resize(members.size());
        found[m] = std::move(it->second);
        it = contents_.modules.erase(it);
      }
    }
    for (auto& [layer, found] : layers)
      contents_.modules[layer + whole] = in_blocks(layer + whole, found, rows);
  }

  AdapterModule in_blocks(const std::string& name, const std::vector<AdapterModule>& members,
                          const std::vector<std::int64_t>& rows) const {
    std::vector<at::Tensor> as;
    std::int64_t rank = 0, out = 0, alike = 0;
    for (const AdapterModule& member : members) {
      if (member.magnitude.defined()) fail("is DoRA's, which can't be put together for '" + name + "'");
      if (!member.update.a.defined()) continue;
      as.push_back(member.update.a);
      rank += member.update.rank();
      alike = member.update.out_features();
    }
    for (std::size_t m = 0; m < members.size(); ++m) out += rows.empty() ? alike : rows[m];
    AdapterModule whole;
    whole.update.a = at::cat(as, 0);
    whole.update.b = at::zeros({out, rank}, whole.update.a.options());
    std::int64_t row = 0, column = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const LowRankUpdate& member = members[m].update;
      if (member.b.defined()) {
        whole.update.b.narrow(0, row, member.out_features()).narrow(1, column, member.rank()).copy_(member.b);
        column += member.rank();
        whole.update.scale = member.scale;
      }
      row += rows.empty() ? alike : rows[m];
    }
    whole.alpha = whole.update.scale * static_cast<double>(rank);
    return whole;
  }

  io::TorchArchive archive_;
  std::filesystem::path file_;
  Base base_;
  ForeignScale scale_;
  bool is_litgpt_ = false;
  std::map<std::string, Part> parts_;
  AdapterContents contents_;
};

}  // namespace

std::optional<ForeignScale> read_foreign_scale(const std::filesystem::path& file) {
  constexpr std::uint64_t kMostBytes = 1 << 20;
  ForeignScale scale;
  std::error_code ignored;
  if (const auto config = file.parent_path() / kAdapterConfig;
      std::filesystem::is_regular_file(config, ignored)) {
    const Json json = Json::parse(read_file(config, kMostBytes), config.string());
    scale.alpha = JsonView(json, config.string()).at("lora_alpha").as_number();
    return scale;
  }
  const auto parameters = file.parent_path() / "hyperparameters.yaml";
  if (!std::filesystem::is_regular_file(parameters, ignored)) return std::nullopt;
  const config::YamlNode root = config::parse_yaml(read_file(parameters, kMostBytes), parameters.string());
  const auto flag = [&](const char* key, bool absent) {
    const config::YamlNode* node = root.find(key);
    return node == nullptr || node->is_null() ? absent : ascii_lower(node->text) == "true";
  };
  const config::YamlNode* alpha = root.is_mapping() ? root.find("lora_alpha") : nullptr;
  const std::string text = alpha != nullptr ? alpha->text : "16";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), scale.alpha);
  if (!root.is_mapping() || error != std::errc() || end != text.data() + text.size())
    throw Error("[adapters] " + escape_control(parameters.string()) +
                ": expected litgpt's arguments with a lora_alpha");
  scale.query = flag("lora_query", true);
  scale.key = flag("lora_key", false);
  scale.value = flag("lora_value", true);
  return scale;
}

AdapterContents read_foreign_adapter(const std::filesystem::path& file, const JsonView& config,
                                     const ForeignScale& scale) {
  return ForeignReader(file, read_base(config), scale).read();
}

}  // namespace lorikeet::peft
