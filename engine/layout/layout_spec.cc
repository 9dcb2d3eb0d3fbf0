#include <string_view>

#include "layout_file.h"

namespace quarry {
namespace {

bool IsLayoutName(std::string_view name) {
  return !name.empty() && name.size() <= 100 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
             std::string_view::npos;
}

}  // namespace

Status CheckSpec(const LayoutSpec& spec) {
  if (!IsLayoutName(spec.name)) {
    return MakeStatus(Code::kUsage, "layout name \"{}\": letters, digits, - and _ are allowed", spec.name);
  }
  if (spec.road.batch_size == 0) return Status(Code::kUsage, "batch size 0: a batch needs at least one seed");
  if (spec.threads == 0) return Status(Code::kUsage, "0 threads: packing needs at least one thread");
  if (spec.epochs == 0) return Status(Code::kUsage, "0 epochs: a layout holds at least one epoch");
  if (spec.batches > 0 && (spec.cyclic || spec.epochs != 1)) {
    return MakeStatus(
        Code::kUsage,
        "batches {} of {} epochs, {}: a superbatch is read once, and is no more than one epoch: set "
        "epochs to 1 and cyclic to false, or batches to 0",
        spec.batches, spec.epochs, spec.cyclic ? "cyclic" : "not cyclic");
  }
  if (spec.hash_functions > 64) {
    return MakeStatus(Code::kUsage, "{} hash functions: at most 64", spec.hash_functions);
  }
  return Status::Ok();
}

}  // namespace quarry
