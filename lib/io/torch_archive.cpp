#include "io/torch_archive.h"

#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "io/pickle.h"
#include "io/zip_directory.h"

namespace lorikeet::io {
namespace {

using Kind = PickleValue::Kind;
using Members = std::map<std::string, std::string_view, std::less<>>;

constexpr unsigned kMostDepth = 16;
constexpr std::size_t kMostVisits = 1'000'000;  // a dictionary may stand in many places

constexpr std::array<std::pair<std::string_view, DType>, 9> kStorages{
    {{"torch DoubleStorage", DType::kF64},
     {"torch FloatStorage", DType::kF32},
     {"torch HalfStorage", DType::kF16},
     {"torch BFloat16Storage", DType::kBF16},
     {"torch LongStorage", DType::kI64},
     {"torch IntStorage", DType::kI32},
     {"torch ShortStorage", DType::kI16},
     {"torch CharStorage", DType::kI8},
     {"torch ByteStorage", DType::kU8}}};

class TensorFinder {
 public:
  TensorFinder(const Members& members, std::string folder, const std::string& name)
      : members_(members), folder_(std::move(folder)), name_(name) {}

  std::vector<TensorView> find(const PickleValue& root) {
    visit(root, "", 0);
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw Error("[file] '" + name_ + "': tensor '" + escape_control(key) + "' " + what);
  }

  void visit(const PickleValue& value, const std::string& key, unsigned depth) {
    if (++visits_ > kMostVisits || depth > kMostDepth)
      throw Error("[file] '" + name_ + "': dictionaries in dictionaries without end");
    if (value.is_call("torch._utils _rebuild_parameter")) {
      const PickleValue& arguments = (*value.items)[1];
      if (!arguments.is(Kind::kTuple) || arguments.items->empty()) fail(key, "is no tensor");
      return visit((*arguments.items)[0], key, depth + 1);
    }
    if (value.is_call("torch._utils _rebuild_tensor_v2")) return add((*value.items)[1], key);
    if (value.is(Kind::kCall) && (*value.items)[0].text.starts_with("torch._utils _rebuild_"))
      fail(key, "is of a kind that isn't read (" + escape_control((*value.items)[0].text) + ")");
    if (!value.is(Kind::kDict)) return;
    for (std::size_t i = 0; i + 1 < value.items->size(); i += 2) {
      const PickleValue& name = (*value.items)[i];
      if (!name.is(Kind::kText)) continue;
      visit((*value.items)[i + 1], key.empty() ? std::string(name.text) : key + "." + std::string(name.text),
            depth + 1);
    }
  }

  // ("storage", class, key, device, elements): its type and bytes.
  std::pair<DType, std::string_view> storage_of(const PickleValue& value, const std::string& key) const {
    if (!value.is(Kind::kStorage) || !value.items->at(0).is(Kind::kTuple) ||
        value.items->at(0).items->size() < 3)
      fail(key, "has no storage");
    const std::vector<PickleValue>& id = *value.items->at(0).items;
    for (const auto& [type, dtype] : kStorages) {
      if (id[1].text != type) continue;
      const auto found = members_.find(folder_ + "data/" + std::string(id[2].text));
      if (found == members_.end()) fail(key, "has its values in a part of the archive that isn't there");
      return {dtype, found->second};
    }
    fail(key, "has values of the kind '" + escape_control(id[1].text) + "', which aren't read");
  }

  std::vector<std::int64_t> sizes_of(const PickleValue& value, const std::string& key) const {
    std::vector<std::int64_t> sizes;
    if (!value.is(Kind::kTuple)) fail(key, "has no shape");
    for (const PickleValue& size : *value.items) {
      if (!size.is(Kind::kInteger) || size.integer < 0) fail(key, "has a size that is no number");
      sizes.push_back(size.integer);
    }
    return sizes;
  }

  // (storage, offset, shape, strides, ...)
  void add(const PickleValue& arguments, const std::string& key) {
    if (!arguments.is(Kind::kTuple) || arguments.items->size() < 4) fail(key, "is no tensor");
    const std::vector<PickleValue>& parts = *arguments.items;
    const auto [dtype, bytes] = storage_of(parts[0], key);
    const std::vector<std::int64_t> shape = sizes_of(parts[2], key), strides = sizes_of(parts[3], key);
    if (strides.size() != shape.size()) fail(key, "has another number of strides than of sizes");
    const std::uint64_t room = bytes.size() / dtype_size(dtype);
    std::uint64_t elements = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (shape[d] > 1 && static_cast<std::uint64_t>(strides[d]) != elements)
        fail(key, "isn't contiguous: save tensor.contiguous()");
      const auto size = static_cast<std::uint64_t>(shape[d]);
      if (size != 0 && elements > room / size) fail(key, "is larger than its values");
      elements *= size;
    }
    const auto offset = static_cast<std::uint64_t>(parts[1].integer);
    if (!parts[1].is(Kind::kInteger) || offset > room || elements > room - offset)
      fail(key, "is larger than its values");
    tensors_.push_back(
        {key, dtype, shape, bytes.substr(offset * dtype_size(dtype), elements * dtype_size(dtype))});
  }

  const Members& members_;
  std::string folder_;
  const std::string& name_;
  std::size_t visits_ = 0;
  std::vector<TensorView> tensors_;
};

}  // namespace

TorchArchive TorchArchive::open(const std::filesystem::path& path) {
  TorchArchive archive;
  archive.map_ = std::make_unique<MappedFile>(path);
  archive.read(archive.map_->bytes(), escape_control(path.filename().string()));
  return archive;
}

TorchArchive TorchArchive::from_bytes(std::string bytes, const std::string& name) {
  TorchArchive archive;
  archive.bytes_ = std::make_unique<std::string>(std::move(bytes));
  archive.read(*archive.bytes_, name);
  return archive;
}

void TorchArchive::read(std::string_view bytes, const std::string& name) {
  const Members members = read_zip_directory(bytes, name);
  for (const auto& [member, content] : members) {
    constexpr std::string_view kPickle = "data.pkl";
    if (!member.ends_with(kPickle)) continue;
    const std::string folder = member.substr(0, member.size() - kPickle.size());
    if (const auto order = members.find(folder + "byteorder");
        order != members.end() && order->second != "little")
      throw Error("[file] '" + name + "' was written on a big-endian machine, which isn't read");
    const Pickle pickle = read_pickle(content, name);
    tensors_ = TensorFinder(members, folder, name).find(pickle.root);
    return;
  }
  throw Error("[file] '" + name + "': expected a file of torch.save, found an archive without data.pkl");
}

}  // namespace lorikeet::io
