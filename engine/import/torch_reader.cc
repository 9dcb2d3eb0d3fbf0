// .pt: what torch.save makes of a dict of arrays, or of a graph of PyTorch Geometric, which holds one. A pickle
// says which arrays there are. Elements of NumPy arrays lie within it; those of tensors beside it, by keys:
//
//   since torch 1.6   a zip archive: NAME/data.pkl, and NAME/data/KEY for each storage
//   before            pickles one after another: a magic number, the protocol's version, what system this
//                     is, the dict, the list of keys; then for each key the count of elements (i64) and the
//                     elements
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "array_archive.h"
#include "derived_sources.h"
#include "pickle_reader.h"
#include "quarry/format/little_endian.h"
#include "text_lines.h"
#include "zip_file.h"

namespace quarry {
namespace {

using Kind = PickleValue::Kind;
using OpenBytes = std::function<Result<std::unique_ptr<ByteSource>>(uint64_t offset)>;

constexpr std::string_view kTorchMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kLegacyVersion = 1001;
constexpr size_t kDimsMax = 64;       // as in NumPy
constexpr uint64_t kColumnsMax = 16;  // for an array that lies column by column: a cursor each

OpenBytes InMemory(std::string bytes) {
  return [bytes = std::move(bytes)](uint64_t offset) -> Result<std::unique_ptr<ByteSource>> {
    return OpenMemory(bytes, offset);
  };
}

struct Storage {
  uint64_t bytes = 0;
  OpenBytes open;
};

struct TorchFile {
  std::string path;
  PickleStream stream;
  Pickle pickle;
  std::map<std::string, Storage> storages;
};

// Makes arrays of the pickle's values.
class Arrays {
 public:
  Arrays(std::shared_ptr<const TorchFile> file, std::string name)
      : file_(std::move(file)), pickle_(file_->pickle), name_(std::move(name)) {}

  Result<NpyArray> Make(const PickleValue& value) const {
    if (value.kind == Kind::kInt) return MakeInts({value.number}, {});
    if (value.kind == Kind::kList) return MakeList(value);
    if (value.kind == Kind::kCall) {
      const PickleCall& call = CallOf(value);
      if (call.function == PickleGlobal::kReconstruct) return MakeReconstructed(call);
      if (call.function == PickleGlobal::kFromBuffer) return MakeFromBuffer(call);
      if (call.function == PickleGlobal::kScalar) return MakeScalar(call);
      if (call.function == PickleGlobal::kRebuildTensor) return MakeTensor(call);
    }
    return Bad("is no array, tensor, list of integers or integer");
  }

 private:
  using Values = std::vector<PickleValue>;

  const PickleCall& CallOf(const PickleValue& value) const { return pickle_.calls[Pickle::Index(value)]; }
  Status Bad(std::string_view what) const {
    return MakeStatus(Code::kInvalidArgument, "{}: {}", name_, what);
  }
  // A tuple's items. `count`: how many there are.
  Result<Values> TupleOf(const PickleValue& value, size_t count, std::string_view what) const {
    if (value.kind == Kind::kTuple && pickle_.ItemsOf(value).size() == count) return pickle_.ItemsOf(value);
    return Bad(fmt::format("has no readable {}", what));
  }
  Result<std::vector<uint64_t>> CountsOf(const PickleValue& value, std::string_view what) const {
    std::vector<uint64_t> counts;
    bool readable = value.kind == Kind::kTuple && pickle_.ItemsOf(value).size() <= kDimsMax;
    for (const PickleValue& item : readable ? pickle_.ItemsOf(value) : Values()) {
      readable = readable && item.kind == Kind::kInt && item.number >= 0;
      counts.push_back(static_cast<uint64_t>(item.number));
    }
    if (!readable) return Bad(fmt::format("has no readable {}", what));
    return counts;
  }

  // (version, shape, dtype, in Fortran order, elements) is the state.
  Result<NpyArray> MakeReconstructed(const PickleCall& call) const {
    QUARRY_TRY(const Values state, TupleOf(call.state, 5, "state"));
    if (state[3].kind != Kind::kBool) return Bad("has no readable order");
    return MakeNumpy(state[1], state[2], state[3].number != 0, state[4]);
  }
  // elements, dtype, shape, "C" or "F"
  Result<NpyArray> MakeFromBuffer(const PickleCall& call) const {
    QUARRY_TRY(const Values arguments, TupleOf(call.arguments, 4, "arguments"));
    const std::string order = pickle_.TextOf(arguments[3]);
    if (order != "C" && order != "F") return Bad("has no readable order");
    return MakeNumpy(arguments[2], arguments[1], order == "F", arguments[0]);
  }
  Result<NpyArray> MakeScalar(const PickleCall& call) const {
    QUARRY_TRY(const Values arguments, TupleOf(call.arguments, 2, "arguments"));
    NpyArray array{.name = name_};
    QUARRY_RETURN_IF_ERROR(SetType(arguments[0], {}, array));
    QUARRY_TRY(array.open, BytesOf(arguments[1], array));
    return array;
  }
  Result<NpyArray> MakeNumpy(const PickleValue& shape, const PickleValue& dtype, bool fortran,
                             const PickleValue& elements) const {
    NpyArray array{.name = name_};
    QUARRY_TRY(std::vector<uint64_t> extents, CountsOf(shape, "shape"));
    QUARRY_RETURN_IF_ERROR(SetType(dtype, std::move(extents), array));
    QUARRY_TRY(array.open, BytesOf(elements, array));
    if (!fortran || array.dims() < 2) return array;
    const uint64_t rows = array.extent(0);
    return ByRows(std::move(array), rows);
  }

  // dtype("i8", False, True), whose state has the byte order in its second place.
  Status SetType(const PickleValue& dtype, std::vector<uint64_t> shape, NpyArray& array) const {
    if (dtype.kind != Kind::kCall || CallOf(dtype).function != PickleGlobal::kDtype)
      return Bad("has no readable dtype");
    QUARRY_TRY(const Values arguments, TupleOf(CallOf(dtype).arguments, 3, "dtype"));
    const PickleValue& state = CallOf(dtype).state;
    std::string descr = pickle_.TextOf(arguments[0]);
    if (state.kind == Kind::kTuple && pickle_.ItemsOf(state).size() > 1)
      descr = pickle_.TextOf(pickle_.ItemsOf(state)[1]) + descr;
    QUARRY_TRY(NpyType type, ParseNpyType(descr, name_));
    return SetShape(std::move(type), std::move(shape), array);
  }
  Status SetShape(NpyType type, std::vector<uint64_t> shape, NpyArray& array) const {
    QUARRY_TRY(array.header.items, CountItems(shape, type, name_));
    array.header.type = std::move(type);
    array.header.shape = std::move(shape);
    return Status::Ok();
  }

  // Bytes by protocol 3 and later; by protocol 2 the encoding of a text, or bytes().
  Result<OpenBytes> BytesOf(const PickleValue& value, const NpyArray& array) const {
    const uint64_t bytes = array.header.data_bytes();
    bool as_text = false;
    const PickleValue* source = value.kind == Kind::kBytes ? &value : nullptr;
    if (value.kind == Kind::kCall && CallOf(value).arguments.kind == Kind::kTuple) {
      const PickleCall& call = CallOf(value);
      const Values& arguments = pickle_.ItemsOf(call.arguments);
      if (call.function == PickleGlobal::kBytes && arguments.empty() && bytes == 0) return InMemory("");
      as_text = call.function == PickleGlobal::kEncode && arguments.size() == 2 &&
                arguments[0].kind == Kind::kText && pickle_.TextOf(arguments[1]) == "latin1";
      if (as_text) source = &arguments[0];
    }
    if (source == nullptr) return Bad("has no readable elements");
    const PickleBytes& place = pickle_.BytesOf(*source);
    // A code point takes one or two bytes.
    if (as_text ? bytes > place.bytes || place.bytes > 2 * bytes : bytes != place.bytes) {
      return Bad(fmt::format("shape {} of '{}' takes {} bytes, and {} are there as {}", array.ShapeText(),
                             array.header.type.name, bytes, place.bytes, as_text ? "text" : "bytes"));
    }
    if (as_text) return TextAt(place, bytes);
    return OpenBytes([file = file_, &place](uint64_t offset) { return OpenPlace(*file, place, offset); });
  }
  static Result<std::unique_ptr<ByteSource>> OpenPlace(const TorchFile& file, const PickleBytes& place,
                                                       uint64_t offset) {
    if (place.bytes > Pickle::kKeptBytesMax) return file.stream.open(place.offset + offset);
    return OpenMemory(place.kept, offset);
  }
  // `place` lives as long as the file's pickle.
  OpenBytes TextAt(const PickleBytes& place, uint64_t bytes) const {
    return
        [file = file_, name = name_, &place, bytes](uint64_t offset) -> Result<std::unique_ptr<ByteSource>> {
          QUARRY_TRY(auto text, OpenPlace(*file, place, 0));
          auto decoded = OpenTextBytes(name, std::move(text), place.bytes, bytes);
          QUARRY_RETURN_IF_ERROR(decoded->Skip(offset));  // where a byte lies, only those before it tell
          return decoded;
        };
  }

  // `array.open` has its columns one after another, `stride` elements from one to the next.
  Result<NpyArray> ByRows(NpyArray array, uint64_t stride) const {
    if (array.dims() != 2 || array.extent(1) > kColumnsMax) {
      return Bad(
          fmt::format("{} lies columns first; save it with numpy.ascontiguousarray", array.ShapeText()));
    }
    if (array.header.items == 0) return array;
    const uint64_t item_bytes = array.header.type.bytes;
    array.open = [by_columns = array.open, item_bytes, stride, rows = array.extent(0),
                  columns = array.extent(1)](uint64_t offset) -> Result<std::unique_ptr<ByteSource>> {
      const uint64_t row = std::min(rows - 1, offset / (item_bytes * columns));
      std::vector<std::unique_ptr<ByteSource>> cursors;
      for (uint64_t i = 0; i < columns; i++) {
        QUARRY_TRY(auto cursor, by_columns((i * stride + row) * item_bytes));
        cursors.push_back(std::move(cursor));
      }
      auto by_rows = OpenColumnRows(std::move(cursors), item_bytes, rows - row);
      QUARRY_RETURN_IF_ERROR(by_rows->Skip(offset - row * item_bytes * columns));
      return by_rows;
    };
    return array;
  }

  // _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
  Result<NpyArray> MakeTensor(const PickleCall& call) const;
  Result<NpyArray> MakeList(const PickleValue& list) const;
  Result<NpyArray> MakeInts(const std::vector<int64_t>& values, std::vector<uint64_t> shape) const;

  const std::shared_ptr<const TorchFile> file_;
  const Pickle& pickle_;
  const std::string name_;
};

struct StorageType {
  PickleGlobal global;
  char kind;
  uint32_t bytes;
  const char* name;
};
constexpr StorageType kStorageTypes[] = {
    {PickleGlobal::kBoolStorage, 'b', 1, "torch.bool"},
    {PickleGlobal::kByteStorage, 'u', 1, "torch.uint8"},
    {PickleGlobal::kCharStorage, 'i', 1, "torch.int8"},
    {PickleGlobal::kShortStorage, 'i', 2, "torch.int16"},
    {PickleGlobal::kIntStorage, 'i', 4, "torch.int32"},
    {PickleGlobal::kLongStorage, 'i', 8, "torch.int64"},
    {PickleGlobal::kHalfStorage, 'f', 2, "torch.float16"},
    {PickleGlobal::kBFloat16Storage, 'B', 2, "torch.bfloat16"},
    {PickleGlobal::kFloatStorage, 'f', 4, "torch.float32"},
    {PickleGlobal::kDoubleStorage, 'f', 8, "torch.float64"},
};

struct StorageId {
  NpyType type;
  std::string key;
  uint64_t items = 0;
};
// ("storage", type, key, device, count), before torch 1.6 with a sixth item: None, or what of another storage
// it is a part of.
Result<StorageId> ParseStorageId(const TorchFile& file, const PickleValue& id) {
  const auto& items = file.pickle.ItemsOf(id);
  const bool whole = items.size() == 5 || (items.size() == 6 && items[5].kind == Kind::kNone);
  if (whole && file.pickle.TextOf(items[0]) == "storage" && items[1].kind == Kind::kGlobal &&
      items[4].kind == Kind::kInt && items[4].number >= 0) {
    StorageId storage{.key = file.pickle.TextOf(items[2]), .items = static_cast<uint64_t>(items[4].number)};
    for (const StorageType& known : kStorageTypes) {
      if (known.global != static_cast<PickleGlobal>(items[1].number) || storage.key.empty()) continue;
      storage.type = {known.kind, known.bytes, known.name};
      QUARRY_RETURN_IF_ERROR(CountItems({storage.items}, storage.type, file.stream.name).status());
      return storage;
    }
  }
  return MakeStatus(Code::kInvalidArgument, "{}: a tensor's elements are no storage of their own",
                    file.stream.name);
}

Result<NpyArray> Arrays::MakeTensor(const PickleCall& call) const {
  QUARRY_TRY(const Values arguments, TupleOf(call.arguments, 6, "arguments"));
  if (arguments[0].kind != Kind::kPersistent || arguments[1].kind != Kind::kInt || arguments[1].number < 0)
    return Bad("has no readable elements");
  QUARRY_TRY(const StorageId id, ParseStorageId(*file_, pickle_.persistent[Pickle::Index(arguments[0])]));
  const auto found = file_->storages.find(id.key);
  const uint64_t storage_bytes = id.items * id.type.bytes;
  if (found == file_->storages.end() || found->second.bytes != storage_bytes) {
    return Bad(fmt::format("storage '{}' of {} bytes is not there", Excerpt(id.key), storage_bytes));
  }
  NpyArray array{.name = name_};
  QUARRY_TRY(std::vector<uint64_t> shape, CountsOf(arguments[2], "shape"));
  QUARRY_TRY(const std::vector<uint64_t> strides, CountsOf(arguments[3], "strides"));
  if (strides.size() != shape.size()) return Bad("has no readable strides");
  QUARRY_RETURN_IF_ERROR(SetShape(id.type, shape, array));

  // An extent of 1 makes no use of its stride.
  const auto strides_are = [&](const std::vector<uint64_t>& wanted) {
    for (size_t i = 0; i < shape.size(); i++) {
      if (shape[i] > 1 && strides[i] != wanted[i]) return false;
    }
    return true;
  };
  std::vector<uint64_t> by_rows(shape.size(), 1);
  for (size_t i = shape.size(); i > 1; i--) by_rows[i - 2] = by_rows[i - 1] * shape[i - 1];
  const uint64_t items = array.header.items;
  const bool whole_rows = items == 0 || strides_are(by_rows);
  // Where they lie columns first, the columns may have others between them.
  const bool whole_columns = shape.size() == 2 && strides_are({1, strides[1]}) && strides[1] <= id.items;
  if (!whole_rows && !whole_columns) return Bad("its elements are not side by side; save its .contiguous()");
  if (!whole_rows && shape[1] > kColumnsMax) return ByRows(std::move(array), 0);  // which says so
  const uint64_t needed = whole_rows ? items : (shape[1] - 1) * strides[1] + shape[0];
  const auto offset = static_cast<uint64_t>(arguments[1].number);
  if (offset > id.items || needed > id.items - offset) {
    return Bad(fmt::format("shape {} from element {} on goes beyond the {} of its storage", array.ShapeText(),
                           offset, id.items));
  }
  array.open = [file = file_, storage = &found->second, start = offset * id.type.bytes](uint64_t at) {
    return storage->open(start + at);
  };
  return whole_rows ? array : ByRows(std::move(array), strides[1]);
}

// The array of a list of integers and NumPy's integers.
Result<NpyArray> Arrays::MakeList(const PickleValue& list) const {
  std::vector<int64_t> values;
  for (const PickleValue& item : pickle_.ItemsOf(list)) {
    int64_t value = item.number;
    if (item.kind == Kind::kCall && CallOf(item).function == PickleGlobal::kScalar) {
      QUARRY_TRY(const NpyArray scalar, MakeScalar(CallOf(item)));
      QUARRY_TRY(const auto cursor, IntCursor::Open(scalar, 0, 1, IntRole::kId));
      QUARRY_RETURN_IF_ERROR(cursor->Read({&value, 1}).status());
    } else if (item.kind != Kind::kInt) {
      return Bad(fmt::format("item {} is no integer", values.size()));
    }
    values.push_back(value);
  }
  return MakeInts(values, {values.size()});
}

Result<NpyArray> Arrays::MakeInts(const std::vector<int64_t>& values, std::vector<uint64_t> shape) const {
  NpyArray array{.name = name_};
  QUARRY_RETURN_IF_ERROR(SetShape({'i', 8, "int"}, std::move(shape), array));
  array.open = InMemory({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)});
  return array;
}

Status NotTorch(const std::string& path, std::string_view what) {
  return MakeStatus(Code::kInvalidArgument, "{}: not a file that torch.save wrote: {}", path, what);
}

Status ReadZip(TorchFile& file) {
  QUARRY_TRY(const auto members, ListZip(file.path));
  constexpr std::string_view kPickle = "/data.pkl";
  const auto pickle =
      std::ranges::find_if(members, [&](const ZipMember& member) { return member.name.ends_with(kPickle); });
  if (pickle == members.end()) return NotTorch(file.path, "the archive has no data.pkl");
  const std::string folder = pickle->name.substr(0, pickle->name.size() - kPickle.size());
  file.stream = {.name = fmt::format("{}: {}", file.path, Excerpt(pickle->name)), .bytes = pickle->bytes};
  const auto open = [path = file.path](const ZipMember& member) {
    return [path, member, name = fmt::format("{}: {}", path, Excerpt(member.name))](uint64_t offset) {
      return OpenZipMember(path, member, name, offset);
    };
  };
  file.stream.open = open(*pickle);
  for (const ZipMember& member : members) {
    const std::string storages = folder + "/data/";
    if (member.name.starts_with(storages))
      file.storages[member.name.substr(storages.size())] = {member.bytes, open(member)};
    if (member.name != folder + "/byteorder") continue;
    QUARRY_TRY(const auto order, OpenZipMember(file.path, member, file.path, 0));
    std::array<char, 6> text{};
    QUARRY_RETURN_IF_ERROR(order->Read(std::as_writable_bytes(std::span(text))).status());
    if (std::string_view(text.data(), text.size()) != "little")
      return NotTorch(file.path, "its byte order is not little-endian");
  }
  QUARRY_TRY(file.pickle, ReadPickle(file.stream, 0));
  if (file.pickle.end == file.stream.bytes) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: offset {}: {} bytes behind the pickle", file.stream.name,
                    file.pickle.end, file.stream.bytes - file.pickle.end);
}

// The item that a dict has by this name; kNone when there is none.
PickleValue ItemOf(const Pickle& pickle, const PickleValue& dict, std::string_view name) {
  if (dict.kind != Kind::kDict) return {};
  const auto& items = pickle.ItemsOf(dict);
  for (size_t i = 0; i < items.size(); i += 2) {
    if (pickle.TextOf(items[i]) == name) return items[i + 1];
  }
  return {};
}

// Behind the pickles, in the order of the keys.
Status FindLegacyStorages(TorchFile& file, const Pickle& keys) {
  std::map<std::string, StorageId> stated;
  for (const PickleValue& persistent : file.pickle.persistent) {
    QUARRY_TRY(StorageId id, ParseStorageId(file, persistent));
    stated.insert_or_assign(id.key, std::move(id));
  }
  uint64_t at = keys.end;
  if (keys.root.kind != Kind::kList) return NotTorch(file.path, "its storages have no list of keys");
  for (const PickleValue& key : keys.ItemsOf(keys.root)) {
    const auto id = stated.find(keys.TextOf(key));
    if (id == stated.end())
      return NotTorch(file.path, fmt::format("storage '{}' is of no tensor", Excerpt(keys.TextOf(key))));
    std::array<std::byte, 8> count{};
    QUARRY_TRY(const auto source, OpenPlainFile(file.path, at));
    QUARRY_TRY(const size_t got, source->Read(count));
    const uint64_t items = LoadLittle<uint64_t>(count.data());
    const uint64_t bytes = id->second.items * id->second.type.bytes;
    const uint64_t left = file.stream.bytes - std::min(file.stream.bytes, at + count.size());
    if (got < count.size() || items != id->second.items || bytes > left) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: offset {}: storage '{}' has {} elements, stated are {} ({} bytes), and {} bytes "
                        "are left; copy it anew",
                        file.path, at, Excerpt(id->first), items, id->second.items, bytes, left);
    }
    file.storages[id->first] = {bytes, [path = file.path, start = at + count.size()](uint64_t offset) {
                                  return OpenPlainFile(path, start + offset);
                                }};
    at += count.size() + bytes;
  }
  if (at == file.stream.bytes) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: offset {}: {} bytes behind the last storage", file.path, at,
                    file.stream.bytes - at);
}

Status ReadLegacy(TorchFile& file) {
  QUARRY_TRY(file.stream.bytes, RegularFileBytes(file.path));
  file.stream.name = file.path;
  file.stream.open = [path = file.path](uint64_t offset) { return OpenPlainFile(path, offset); };
  QUARRY_TRY(const Pickle magic, ReadPickle(file.stream, 0));
  if (magic.root.kind != Kind::kBytes || magic.BytesOf(magic.root).kept != kTorchMagic)
    return NotTorch(file.path, "it is a pickle without torch's magic number");
  QUARRY_TRY(const Pickle version, ReadPickle(file.stream, magic.end));
  if (version.root.kind != Kind::kInt || version.root.number != kLegacyVersion)
    return NotTorch(file.path, fmt::format("a version other than {}", kLegacyVersion));
  QUARRY_TRY(const Pickle system, ReadPickle(file.stream, version.end));
  const PickleValue little = ItemOf(system, system.root, "little_endian");
  if (little.kind != Kind::kBool || little.number == 0)
    return NotTorch(file.path, "its byte order is not little-endian");
  QUARRY_TRY(file.pickle, ReadPickle(file.stream, system.end));
  QUARRY_TRY(const Pickle keys, ReadPickle(file.stream, file.pickle.end));
  return FindLegacyStorages(file, keys);
}

// The state of an object of PyTorch Geometric; kNone when it is none.
PickleValue StateOf(const Pickle& pickle, const PickleValue& value) {
  if (value.kind != Kind::kCall) return {};
  const PickleCall& call = pickle.calls[Pickle::Index(value)];
  return call.function == PickleGlobal::kObject ? call.state : PickleValue();
}

// The dict of arrays that the file is about:
//
//   dict                              its own
//   Data, of version 2                its _store's _mapping
//   Data, of version 1                its attributes
//   (dict or Data, slices, ...)       of InMemoryDataset; without slices it is of one graph
Result<PickleValue> FindDict(const TorchFile& file) {
  const Pickle& pickle = file.pickle;
  PickleValue graph = pickle.root;
  if (graph.kind == Kind::kTuple && pickle.ItemsOf(graph).size() >= 2) {
    const auto& items = pickle.ItemsOf(graph);
    if (items[1].kind == Kind::kDict && !pickle.ItemsOf(items[1]).empty()) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: holds many graphs and where each begins (a dataset of PyTorch Geometric); save one of "
          "them, by torch.save(dataset[0], ...)",
          file.path);
    }
    graph = items[0];
  }
  const PickleValue state = StateOf(pickle, graph);
  // A dataset of one has what .to_dict() makes of it.
  if (ItemOf(pickle, state, "_node_store_dict").kind != Kind::kNone ||
      ItemOf(pickle, graph, "_global_store").kind != Kind::kNone) {
    return MakeStatus(Code::kUnsupported,
                      "{}: holds a HeteroData, whose nodes have types: save its .to_homogeneous()",
                      file.path);
  }
  if (state.kind == Kind::kDict) {
    graph = state;
    const PickleValue store = StateOf(pickle, ItemOf(pickle, state, "_store"));
    const PickleValue arrays = ItemOf(pickle, store, "_mapping");
    if (arrays.kind == Kind::kDict) graph = arrays;
  }
  if (graph.kind == Kind::kDict) return graph;
  return MakeStatus(Code::kInvalidArgument,
                    "{}: holds no dict of arrays by names, and no Data of PyTorch Geometric", file.path);
}

}  // namespace

Result<ArrayArchive> OpenTorchFile(const std::string& path) {
  const auto file = std::make_shared<TorchFile>();
  file->path = path;
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, 8));
  if (prefix.starts_with("PK")) {
    QUARRY_RETURN_IF_ERROR(ReadZip(*file));
  } else if (prefix.starts_with("\x80")) {
    QUARRY_RETURN_IF_ERROR(ReadLegacy(*file));
  } else {
    return NotTorch(path, "it looks like " + DescribePrefix(prefix));
  }
  QUARRY_TRY(const PickleValue dict, FindDict(*file));
  const Pickle& pickle = file->pickle;
  ArrayArchive archive{.path = path};
  std::set<std::string> keys;
  const auto& items = pickle.ItemsOf(dict);
  for (size_t i = 0; i < items.size(); i += 2) {
    const std::string key = pickle.TextOf(items[i]);
    if (items[i].kind != Kind::kText || !keys.insert(key).second) {
      return MakeStatus(Code::kInvalidArgument, "{}: item {} of its dict has no name of its own", path,
                        i / 2);
    }
    const std::string name = fmt::format("{}: {}", path, Excerpt(key));
    archive.members.push_back(
        {.key = key, .open = [file, name, value = items[i + 1]] { return Arrays(file, name).Make(value); }});
  }
  return archive;
}

}  // namespace quarry
