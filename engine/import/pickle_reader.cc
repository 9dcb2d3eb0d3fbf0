#include "pickle_reader.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "quarry/format/little_endian.h"
#include "text_lines.h"

namespace quarry {
namespace {

using Kind = PickleValue::Kind;

constexpr uint64_t kHeldBytesMax = 2 << 20;  // vectors that grow take twice as much
constexpr size_t kWindowBytes = 64 << 10;
constexpr size_t kGlobalNameBytesMax = 256;

// Named as in Python's pickletools.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObject = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

struct KnownGlobal {
  std::string_view module;
  std::string_view name;
  PickleGlobal global;
};
constexpr KnownGlobal kKnownGlobals[] = {
    {"numpy.core.multiarray", "_reconstruct", PickleGlobal::kReconstruct},
    {"numpy._core.multiarray", "_reconstruct", PickleGlobal::kReconstruct},  // NumPy 2
    {"numpy.core.numeric", "_frombuffer", PickleGlobal::kFromBuffer},
    {"numpy._core.numeric", "_frombuffer", PickleGlobal::kFromBuffer},
    {"numpy.core.multiarray", "scalar", PickleGlobal::kScalar},
    {"numpy._core.multiarray", "scalar", PickleGlobal::kScalar},
    {"numpy", "ndarray", PickleGlobal::kNdarray},
    {"numpy", "dtype", PickleGlobal::kDtype},
    {"_codecs", "encode", PickleGlobal::kEncode},
    {"__builtin__", "bytes", PickleGlobal::kBytes},
    {"collections", "OrderedDict", PickleGlobal::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensor},
    {"torch", "BoolStorage", PickleGlobal::kBoolStorage},
    {"torch", "ByteStorage", PickleGlobal::kByteStorage},
    {"torch", "CharStorage", PickleGlobal::kCharStorage},
    {"torch", "ShortStorage", PickleGlobal::kShortStorage},
    {"torch", "IntStorage", PickleGlobal::kIntStorage},
    {"torch", "LongStorage", PickleGlobal::kLongStorage},
    {"torch", "HalfStorage", PickleGlobal::kHalfStorage},
    {"torch", "BFloat16Storage", PickleGlobal::kBFloat16Storage},
    {"torch", "FloatStorage", PickleGlobal::kFloatStorage},
    {"torch", "DoubleStorage", PickleGlobal::kDoubleStorage},
};

// Its graphs hold their arrays in a dict (torch_reader.cc); beside it they name their classes alone.
constexpr std::string_view kObjectModules = "torch_geometric.";

// Reads a stream front to back, and knows how much of it is left.
class Window {
 public:
  Window(const PickleStream& stream, uint64_t offset)
      : stream_(stream), position_(offset), window_(kWindowBytes) {}

  Status Open() {
    QUARRY_TRY(source_, stream_.open(position_));
    return Status::Ok();
  }
  uint64_t position() const { return position_; }

  // Checks that `bytes` bytes of `what` are left; the error names it.
  Status Need(uint64_t bytes, std::string_view what) const {
    const uint64_t left = stream_.bytes - std::min(stream_.bytes, position_);
    if (bytes <= left) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument,
                      "{}: offset {}: the pickle is cut off or damaged: {} of {} bytes, where {} are left; "
                      "copy it anew",
                      stream_.name, position_, what, bytes, left);
  }

  Status Read(std::span<std::byte> out, std::string_view what) {
    QUARRY_RETURN_IF_ERROR(Need(out.size(), what));
    while (!out.empty()) {
      if (begin_ == end_) QUARRY_RETURN_IF_ERROR(Refill());
      const size_t n = std::min(out.size(), end_ - begin_);
      std::copy_n(window_.begin() + static_cast<ptrdiff_t>(begin_), n, out.begin());
      begin_ += n;
      position_ += n;
      out = out.subspan(n);
    }
    return Status::Ok();
  }

  // REQUIRES: Need(bytes) holds.
  Status Skip(uint64_t bytes) {
    const size_t held = std::min<uint64_t>(bytes, end_ - begin_);
    begin_ += held;
    position_ += bytes;
    return source_->Skip(bytes - held);
  }

 private:
  Status Refill() {
    begin_ = 0;
    const uint64_t left = stream_.bytes - position_;
    QUARRY_TRY(end_, source_->Read(std::span(window_).first(std::min<uint64_t>(left, window_.size()))));
    if (end_ > 0) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "{}: ends early, at byte {} of {}; copy it anew", stream_.name,
                      position_, stream_.bytes);
  }

  const PickleStream& stream_;
  std::unique_ptr<ByteSource> source_;
  uint64_t position_;
  std::vector<std::byte> window_;
  size_t begin_ = 0;  // start of what has been read and not taken
  size_t end_ = 0;
};

// The stack machine.
// It recurses nowhere: a tree nested ten thousand deep costs ten thousand values, and one that holds itself
// nothing.
class Unpickler {
 public:
  Unpickler(const PickleStream& stream, uint64_t offset) : stream_(stream), window_(stream, offset) {}

  Result<Pickle> Run() {
    QUARRY_RETURN_IF_ERROR(window_.Open());
    while (true) {
      at_ = window_.position();
      QUARRY_TRY(const uint8_t op, Number<uint8_t>());
      if (op == kStop) break;
      QUARRY_RETURN_IF_ERROR(Step(op));
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      return Bad(fmt::format("the pickle stops with {} values on its stack instead of one", stack_.size()));
    }
    pickle_.root = stack_[0];
    pickle_.end = window_.position();
    return std::move(pickle_);
  }

 private:
  // By what the opcodes do; each passes on those that are not its own.
  Status Step(uint8_t op) {
    switch (op) {
      case kProto: {
        QUARRY_TRY(const uint8_t version, Number<uint8_t>());
        if (version >= 2 && version <= 5) return Status::Ok();
        return Bad(fmt::format("pickle protocol {} (2 to 5 are known)", version));
      }
      case kFrame: {
        QUARRY_TRY(const uint64_t bytes, Number<uint64_t>());
        return window_.Need(bytes, "a frame");
      }
      case kNone:
        return Push({});
      case kNewTrue:
      case kNewFalse:
        return Push({Kind::kBool, op == kNewTrue ? 1 : 0});
      case kBinInt1:
        return PushInt<uint8_t>();
      case kBinInt2:
        return PushInt<uint16_t>();
      case kBinInt:
        return PushInt<uint32_t>();
      case kBinFloat: {
        QUARRY_TRY(const uint64_t bits, Number<uint64_t>());
        return Push({Kind::kFloat, static_cast<int64_t>(bits)});  // big-endian; nobody asks for its value
      }
      case kLong1:
        return StepLong();
      default:
        return StepBytes(op);
    }
  }

  Status StepBytes(uint8_t op) {
    switch (op) {
      case kShortBinUnicode:
        return PushBytes<uint8_t>(Kind::kText);
      case kBinUnicode:
        return PushBytes<uint32_t>(Kind::kText);
      case kBinUnicode8:
        return PushBytes<uint64_t>(Kind::kText);
      case kShortBinBytes:
        return PushBytes<uint8_t>(Kind::kBytes);
      case kBinBytes:
        return PushBytes<uint32_t>(Kind::kBytes);
      case kBinBytes8:
      case kByteArray8:
        return PushBytes<uint64_t>(Kind::kBytes);
      default:
        return StepItems(op);
    }
  }

  Status StepItems(uint8_t op) {
    switch (op) {
      case kMark:
        marks_.push_back(stack_.size());
        return Hold(sizeof(size_t));
      case kEmptyTuple:
        return PushItems(Kind::kTuple, {});
      case kEmptyList:
        return PushItems(Kind::kList, {});
      case kEmptyDict:
        return PushItems(Kind::kDict, {});
      case kTuple1:
      case kTuple2:
      case kTuple3: {
        QUARRY_TRY(auto items, Pop(size_t{1} + op - kTuple1));
        return PushItems(Kind::kTuple, std::move(items));
      }
      case kTuple: {
        QUARRY_TRY(auto items, PopToMark());
        return PushItems(Kind::kTuple, std::move(items));
      }
      case kAppend:
      case kSetItem: {
        QUARRY_TRY(const auto items, Pop(op == kAppend ? 1 : 2));
        return Extend(op == kAppend ? Kind::kList : Kind::kDict, items);
      }
      case kAppends:
      case kSetItems: {
        QUARRY_TRY(const auto items, PopToMark());
        return Extend(op == kAppends ? Kind::kList : Kind::kDict, items);
      }
      default:
        return StepMemo(op);
    }
  }

  Status StepMemo(uint8_t op) {
    switch (op) {
      case kBinPut: {
        QUARRY_TRY(const uint8_t place, Number<uint8_t>());
        return Memoize(place);
      }
      case kLongBinPut: {
        QUARRY_TRY(const uint32_t place, Number<uint32_t>());
        return Memoize(place);
      }
      case kMemoize:
        return Memoize(memo_.size());
      case kBinGet: {
        QUARRY_TRY(const uint8_t place, Number<uint8_t>());
        return Recall(place);
      }
      case kLongBinGet: {
        QUARRY_TRY(const uint32_t place, Number<uint32_t>());
        return Recall(place);
      }
      default:
        return StepCall(op);
    }
  }

  Status StepCall(uint8_t op) {
    switch (op) {
      case kGlobal: {
        QUARRY_TRY(const std::string module, Line());
        QUARRY_TRY(const std::string name, Line());
        return PushGlobal(module, name);
      }
      case kStackGlobal: {
        QUARRY_TRY(const auto names, Pop(2));
        return PushGlobal(pickle_.TextOf(names[0]), pickle_.TextOf(names[1]));
      }
      case kReduce:
      case kNewObject: {
        QUARRY_TRY(const auto call, Pop(2));
        if (call[0].kind != Kind::kGlobal || call[1].kind != Kind::kTuple) {
          return Bad("a call of what is no function, or without a tuple of arguments");
        }
        if (op == kNewObject && static_cast<PickleGlobal>(call[0].number) != PickleGlobal::kObject) {
          return Bad("an instance of what Quarry knows as a function");
        }
        pickle_.calls.push_back({static_cast<PickleGlobal>(call[0].number), call[1], {}});
        QUARRY_RETURN_IF_ERROR(Hold(sizeof(PickleCall)));
        return Push({Kind::kCall, static_cast<int64_t>(pickle_.calls.size() - 1)});
      }
      case kBuild: {
        QUARRY_TRY(const auto state, Pop(1));
        if (Top() == nullptr || Top()->kind != Kind::kCall) return Bad("a state of what takes none");
        pickle_.calls[Pickle::Index(*Top())].state = state[0];
        return Status::Ok();
      }
      case kBinPersId: {
        QUARRY_TRY(const auto id, Pop(1));
        if (id[0].kind != Kind::kTuple) return Bad("a persistent id that is no tuple");
        pickle_.persistent.push_back(id[0]);
        QUARRY_RETURN_IF_ERROR(Hold(sizeof(PickleValue)));
        return Push({Kind::kPersistent, static_cast<int64_t>(pickle_.persistent.size() - 1)});
      }
      default:
        return Bad(fmt::format("opcode {:#04x}, which torch.save writes for no array", op));
    }
  }

  // Integers of up to 64 bits are numbers.
  Status StepLong() {
    QUARRY_TRY(const uint8_t bytes, Number<uint8_t>());
    std::string raw(bytes, '\0');
    QUARRY_RETURN_IF_ERROR(window_.Read(std::as_writable_bytes(std::span(raw)), "an integer"));
    if (bytes > 8) return PushKept({.offset = at_, .bytes = bytes, .kept = std::move(raw)}, Kind::kBytes);
    std::array<std::byte, 8> wide;
    wide.fill(!raw.empty() && (raw.back() & 0x80) != 0 ? std::byte{0xff} : std::byte{0});
    std::copy_n(reinterpret_cast<const std::byte*>(raw.data()), raw.size(), wide.begin());
    return Push({Kind::kInt, static_cast<int64_t>(LoadLittle<uint64_t>(wide.data()))});
  }

  template <typename T>
  Result<T> Number() {
    std::array<std::byte, sizeof(T)> raw;
    QUARRY_RETURN_IF_ERROR(window_.Read(raw, "a value"));
    return LoadLittle<T>(raw.data());
  }
  template <typename T>
  Status PushInt() {
    QUARRY_TRY(const T value, Number<T>());
    // BININT alone has a sign.
    const int64_t number = sizeof(T) == 4 ? int64_t{static_cast<int32_t>(value)} : int64_t{value};
    return Push({Kind::kInt, number});
  }
  template <typename T>
  Status PushBytes(Kind kind) {
    QUARRY_TRY(const T bytes, Number<T>());
    QUARRY_RETURN_IF_ERROR(window_.Need(bytes, kind == Kind::kText ? "a text" : "an array"));
    PickleBytes value{.offset = window_.position(), .bytes = bytes};
    if (bytes > Pickle::kKeptBytesMax) {
      QUARRY_RETURN_IF_ERROR(window_.Skip(bytes));
    } else {
      value.kept.resize(bytes);
      QUARRY_RETURN_IF_ERROR(window_.Read(std::as_writable_bytes(std::span(value.kept)), "a text"));
    }
    return PushKept(std::move(value), kind);
  }
  Status PushKept(PickleBytes value, Kind kind) {
    QUARRY_RETURN_IF_ERROR(Hold(sizeof(PickleBytes) + value.kept.size()));
    pickle_.bytes.push_back(std::move(value));
    return Push({kind, static_cast<int64_t>(pickle_.bytes.size() - 1)});
  }

  // A line of a GLOBAL.
  Result<std::string> Line() {
    std::string line;
    while (line.size() < kGlobalNameBytesMax) {
      QUARRY_TRY(const uint8_t letter, Number<uint8_t>());
      if (letter == '\n') return line;
      line += static_cast<char>(letter);
    }
    return Bad(fmt::format("a name of more than {} bytes", kGlobalNameBytesMax));
  }
  Status PushGlobal(const std::string& module, const std::string& name) {
    for (const KnownGlobal& known : kKnownGlobals) {
      if (known.module == module && known.name == name)
        return Push({Kind::kGlobal, static_cast<int64_t>(known.global)});
    }
    if (module.starts_with(kObjectModules)) {
      return Push({Kind::kGlobal, static_cast<int64_t>(PickleGlobal::kObject)});
    }
    return Bad(
        fmt::format("it refers to {}.{}; Quarry runs no code out of files, and takes NumPy arrays, "
                    "tensors and integers alone",
                    Excerpt(module), Excerpt(name)));
  }

  Status Push(const PickleValue& value) {
    stack_.push_back(value);
    return Hold(sizeof(PickleValue));
  }
  Status PushItems(Kind kind, std::vector<PickleValue> items) {
    QUARRY_RETURN_IF_ERROR(Hold(sizeof(std::vector<PickleValue>) + items.size() * sizeof(PickleValue)));
    pickle_.items.push_back(std::move(items));
    return Push({kind, static_cast<int64_t>(pickle_.items.size() - 1)});
  }
  // Those above the last mark alone.
  Result<std::vector<PickleValue>> Pop(size_t count) {
    const size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - bottom < count) return Bad("it takes more from its stack than there is");
    const std::vector<PickleValue> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  Result<std::vector<PickleValue>> PopToMark() {
    if (marks_.empty()) return Bad("it takes more from its stack than there is");
    auto items = Pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  // Null when there is none above the last mark.
  const PickleValue* Top() const {
    return stack_.size() > (marks_.empty() ? 0 : marks_.back()) ? &stack_.back() : nullptr;
  }
  Status Extend(Kind kind, const std::vector<PickleValue>& added) {
    if (Top() == nullptr || Top()->kind != kind || (kind == Kind::kDict && added.size() % 2 != 0)) {
      return Bad("items of what is no list or dict");
    }
    auto& items = pickle_.items[Pickle::Index(*Top())];
    items.insert(items.end(), added.begin(), added.end());
    return Hold(added.size() * sizeof(PickleValue));
  }

  Status Memoize(uint64_t place) {
    if (Top() == nullptr) return Bad("it takes more from its stack than there is");
    memo_[place] = *Top();
    return Hold(4 * sizeof(PickleValue));  // with what a map adds
  }
  Status Recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) return Bad(fmt::format("it repeats value {}, which there is not", place));
    return Push(found->second);
  }

  // What is held is counted and never given back, so the work is bounded with the memory.
  Status Hold(uint64_t bytes) {
    held_bytes_ += bytes;
    if (held_bytes_ <= kHeldBytesMax) return Status::Ok();
    return Bad(fmt::format("the values up to here take more than {} bytes; save lists as NumPy arrays",
                           kHeldBytesMax));
  }
  Status Bad(std::string_view what) const {
    return MakeStatus(Code::kInvalidArgument, "{}: offset {}: {}", stream_.name, at_, what);
  }

  const PickleStream& stream_;
  Window window_;
  uint64_t at_ = 0;  // offset of the opcode
  Pickle pickle_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, PickleValue> memo_;
  uint64_t held_bytes_ = 0;
};

}  // namespace

Result<Pickle> ReadPickle(const PickleStream& stream, uint64_t offset) {
  return Unpickler(stream, offset).Run();
}

}  // namespace quarry
