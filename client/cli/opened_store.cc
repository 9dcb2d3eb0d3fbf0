#include "opened_store.h"

#include <algorithm>
#include <cmath>

#include "option_values.h"

namespace quarry::cli {

Result<std::unique_ptr<client::Store>> OpenStore(const std::string& address, const std::string& memory,
                                                 uint64_t whole_bytes) {
  client::OpenOptions options;
  if (!memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", memory, whole_bytes));
  }
  return client::Open(address, options);
}

Result<Manifest> ManifestOf(client::Store& store, const std::string& address) {
  QUARRY_TRY(const std::vector<std::byte> bytes, store.ReadManifest());
  return DecodeManifest(bytes, address);
}

Result<std::string> FolderOf(client::Store& store) {
  QUARRY_TRY(const wire::Description description, store.Describe());
  return description.path;
}

nlohmann::ordered_json NumberOf(double counter) {
  if (std::trunc(counter) == counter && std::abs(counter) < 0x1p53) return static_cast<int64_t>(counter);
  return counter;
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

nlohmann::ordered_json Figures::Group(std::string_view prefix) const {
  nlohmann::ordered_json group = nlohmann::ordered_json::object();
  for (const wire::Counter& counter : report_.counters) {
    const std::string_view name = counter.name;
    if (!name.starts_with(prefix) || !name.substr(prefix.size()).starts_with('.')) continue;
    group[std::string(name.substr(prefix.size() + 1))] = NumberOf(counter.value);
  }
  return group;
}

}  // namespace quarry::cli
