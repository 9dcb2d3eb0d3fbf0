// Python pickles, protocol 2 to 5, as trees of what they say and not of what it would make: nothing is called
// or imported. Opcodes and globals that torch.save does not write for arrays are refused. Private to this
// room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "byte_source.h"
#include "quarry/base/status.h"

namespace quarry {

// All that a pickle may refer to. kObject: any class of PyTorch Geometric, of which no more is known than the state that
// follows it.
enum class PickleGlobal : uint8_t {
  kReconstruct,  // an ndarray, which a state follows
  kFromBuffer,   // an ndarray by protocol 5
  kScalar,
  kNdarray,
  kDtype,
  kEncode,  // bytes by protocol 2: text of the code points 0 to 255
  kBytes,   // no bytes by protocol 2
  kOrderedDict,
  kRebuildTensor,
  kBoolStorage,
  kByteStorage,
  kCharStorage,
  kShortStorage,
  kIntStorage,
  kLongStorage,
  kHalfStorage,
  kBFloat16Storage,
  kFloatStorage,
  kDoubleStorage,
  kObject,
};

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,  // also integers beyond 64 bits, little-endian
    kTuple,
    kList,
    kDict,
    kGlobal,
    kCall,
    kPersistent,  // what torch.save puts beside the pickle: elements of tensors
  };
  Kind kind = Kind::kNone;
  // The number; of a global which one; of the others, where it is in the pickle's vectors.
  int64_t number = 0;
};

// Bytes, or text as UTF-8.
struct PickleBytes {
  uint64_t offset = 0;  // in the stream
  uint64_t bytes = 0;
  std::string kept;  // all of them, when they are few (kKeptBytesMax)
};

struct PickleCall {
  PickleGlobal function;
  PickleValue arguments;  // a tuple
  PickleValue state;      // kNone when there is none
};

// A stream with pickles, and its cursors.
struct PickleStream {
  std::string name;  // for messages
  uint64_t bytes = 0;
  std::function<Result<std::unique_ptr<ByteSource>>(uint64_t offset)> open;
};

// One pickle. Values may refer to themselves, as in Python.
struct Pickle {
  static constexpr uint64_t kKeptBytesMax = 4096;
  PickleValue root;
  std::vector<PickleBytes> bytes;               // kText, kBytes
  std::vector<std::vector<PickleValue>> items;  // kTuple, kList; kDict: keys and values in turns
  std::vector<PickleCall> calls;
  std::vector<PickleValue> persistent;  // a tuple each
  uint64_t end = 0;                     // in the stream, behind the pickle

  const std::vector<PickleValue>& ItemsOf(const PickleValue& value) const { return items[Index(value)]; }
  const PickleBytes& BytesOf(const PickleValue& value) const { return bytes[Index(value)]; }
  // The text, where it is kept; else empty.
  std::string TextOf(const PickleValue& value) const {
    return value.kind == PickleValue::Kind::kText ? BytesOf(value).kept : std::string();
  }
  static size_t Index(const PickleValue& value) { return static_cast<size_t>(value.number); }
};

// Reads the pickle that starts at `offset`. Holds 4 MiB at most, and refuses a pickle that takes more;
// long bytes and texts are skipped. kInvalidArgument names the stream, the offset and what is found there.
Result<Pickle> ReadPickle(const PickleStream& stream, uint64_t offset);

}  // namespace quarry
