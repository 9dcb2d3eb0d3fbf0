// The database that a verb works on: at a path, in this process, or a server's.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "quarry/client/store.h"
#include "quarry/format/manifest.h"

namespace quarry::cli {

// `memory`: as --memory takes it, a share of `whole_bytes`; empty: the default. A database at a path opens with that
// budget; a server is asked for as much of its own.
Result<std::unique_ptr<client::Store>> OpenStore(const std::string& address, const std::string& memory = "",
                                                 uint64_t whole_bytes = 0);

// As it is now.
Result<Manifest> ManifestOf(client::Store& store, const std::string& address);

// Where the database lies, as sentences about it begin: for a server, on its machine.
Result<std::string> FolderOf(client::Store& store);

// A counter as JSON has it: whole where it is.
nlohmann::ordered_json NumberOf(double counter);

// The counters of a report by their names.
class Figures {
 public:
  explicit Figures(const wire::MaintenanceReport& report) : report_(report) {}
  double Real(std::string_view name) const;     // 0: the report has none of the name
  uint64_t Count(std::string_view name) const;  // the same, of a number that counts
  // Those whose names begin with "PREFIX.", by the rest of their names.
  nlohmann::ordered_json Group(std::string_view prefix) const;

 private:
  const wire::MaintenanceReport& report_;
};

inline constexpr const char* kAddressHelp = "database folder, or a server's address, unix:PATH";

}  // namespace quarry::cli
