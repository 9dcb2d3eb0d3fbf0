#include "opened_store.h"

#include <algorithm>

#include "option_values.h"

namespace quarry::cli {

Result<std::unique_ptr<client::Store>> OpenStore(const std::string& address, const std::string& memory) {
  client::OpenOptions options;
  if (!memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", memory, 0));
  }
  return client::Open(address, options);
}

Result<Manifest> ManifestOf(client::Store& store, const std::string& address) {
  QUARRY_TRY(const std::vector<std::byte> bytes, store.ReadManifest());
  return DecodeManifest(bytes, address);
}

double Figures::Real(std::string_view name) const {
  const auto found = std::ranges::find(report_.counters, name, &wire::Counter::name);
  return found == report_.counters.end() ? 0 : found->value;
}

// A server may say anything.
uint64_t Figures::Count(std::string_view name) const {
  const double value = Real(name);
  return value > 0 && value < 0x1p64 ? static_cast<uint64_t>(value) : 0;
}

}  // namespace quarry::cli
