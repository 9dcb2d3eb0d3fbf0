// CatalogFaults: makes chosen operations of catalogs on their files fail. For tests: what FaultBackend is to
// data files, for the catalog's own, which do not pass through an IoBackend.
//
// Catalogs that are opened while it lives are struck by it, and must be closed before it goes; one
// CatalogFaults or CatalogWatch at a time in a process. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace quarry {

// kOpen: of a file that exists; kCreate: of a new one, or of a link to one.
enum class CatalogFault : uint8_t { kOpen, kCreate, kRead, kAppend, kSync, kRename };
inline constexpr size_t kCatalogFaultCount = 6;

// As FaultPlan (fault_backend.h). A struck append leaves half its bytes behind.
struct CatalogFaultPlan {
  CatalogFault kind = CatalogFault::kAppend;
  uint64_t at = 0;      // the first operation of the kind that is struck, from 1; 0 = none
  bool sticky = false;  // every later one too
  int error = 0;        // errno
};

class CatalogFaults {
 public:
  CatalogFaults();
  ~CatalogFaults();
  CatalogFaults(const CatalogFaults&) = delete;
  CatalogFaults& operator=(const CatalogFaults&) = delete;

  void SetPlan(const CatalogFaultPlan& plan);  // also restarts the counts
  uint64_t count(CatalogFault kind) const;
  uint64_t strikes() const;
  std::string struck_file() const;  // that the first strike was on; empty: none

  class Impl;

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quarry
