// What verbs do at a place in an object store, s3://BUCKET/PREFIX.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/objects/object_store.h"
#include "quarry/objects/place.h"

namespace quarry::cli {

// The store of an address, with the memory that its transfers may take.
struct OpenedObjects {
  std::unique_ptr<MemoryBudget> budget;
  std::unique_ptr<ObjectStore> store;  // dies before its budget
};

inline constexpr const char* kObjectsMemory = "512MiB";
inline constexpr const char* kObjectsMemoryHelp = "what transfers may hold: more requests side by side";
inline constexpr const char* kPlaceHelp = "place in an object store, s3://BUCKET/PREFIX";

// Keys, region and endpoint as the AWS command line has them.
Result<OpenedObjects> OpenObjects(const std::string& address, const std::string& memory = kObjectsMemory);

// kUsage for a verb, or an option of it, that works on a database alone.
Status CheckNoObjects(std::string_view verb, std::string_view address);

Status InfoOfObjects(const std::string& address, bool json);
Status VerifyObjects(const std::string& address, bool json);

}  // namespace quarry::cli
