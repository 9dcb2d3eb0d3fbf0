#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "quarry/trainer/communicator.h"

namespace quarry {
namespace {

constexpr uint32_t kSizeMax = 1024;  // members of a group of the local protocol

struct Launcher {
  const char* rank;
  const char* size;
};
// In this order: mpirun under Slurm sets both, and knows better.
constexpr std::array<Launcher, 4> kLaunchers = {{{"RANK", "WORLD_SIZE"},  // torchrun
                                                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                 {"PMI_RANK", "PMI_SIZE"},  // MPICH
                                                 {"SLURM_PROCID", "SLURM_NTASKS"}}};

Result<uint32_t> Number(const char* name, std::string_view text, uint32_t min, uint32_t max) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= min && value <= max) return value;
  return MakeStatus(Code::kUsage, "the environment has {}={}, which is no number from {} to {}", name, text,
                    min, max);
}

// The first host of a list: "node03" of "node[03-07,9],other".
std::string FirstHost(std::string_view list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket >= comma) return std::string(list.substr(0, comma));
  const std::string_view numbers = list.substr(bracket + 1);
  return std::string(list.substr(0, bracket)) + std::string(numbers.substr(0, numbers.find_first_of("-,]")));
}

// Where torchrun listens itself, it speaks the protocol of its own LibTorch, which need not be ours: its
// processes meet beside the files that it has for each of them, in FOLDER/attempt_N/RANK/error.json.
Result<std::string> FileOfAgent(const std::function<const char*(const char*)>& get) {
  const char* const groups = get("GROUP_WORLD_SIZE");
  const char* const error_file = get("TORCHELASTIC_ERROR_FILE");
  const std::filesystem::path file = error_file == nullptr ? "" : error_file;
  if ((groups == nullptr || std::string_view(groups) == "1") && file.is_absolute()) {
    return (file.parent_path().parent_path() / "quarry-rendezvous").string();
  }
  return Status(Code::kUsage,
                "the environment has TORCHELASTIC_USE_AGENT_STORE=True: torchrun has the port to itself, and "
                "says of no place for trainers to meet; start it with --standalone or --rdzv-backend c10d");
}

}  // namespace

Result<std::optional<Rendezvous>> RendezvousFromEnvironment(
    const std::function<const char*(const char*)>& get) {
  for (const Launcher& launcher : kLaunchers) {
    const char* const rank = get(launcher.rank);
    const char* const size = get(launcher.size);
    if (rank == nullptr || size == nullptr) continue;
    Rendezvous found;
    QUARRY_TRY(found.size, Number(launcher.size, size, 1, kSizeMax));
    if (found.size == 1) return std::optional<Rendezvous>();
    QUARRY_TRY(found.rank, Number(launcher.rank, rank, 0, found.size - 1));
    const char* const agent = get("TORCHELASTIC_USE_AGENT_STORE");
    if (&launcher == kLaunchers.data() && agent != nullptr && std::string_view(agent) == "True") {
      QUARRY_TRY(found.address, FileOfAgent(get));
    } else if (const char* const address = get("MASTER_ADDR")) {
      found.address = address;
    } else if (const char* const nodes = get("SLURM_NODELIST")) {
      found.address = FirstHost(nodes);
    }
    if (const char* const port = get("MASTER_PORT")) {
      QUARRY_TRY(const uint32_t number, Number("MASTER_PORT", port, 1, UINT16_MAX));
      found.port = static_cast<uint16_t>(number);
    }
    return std::optional<Rendezvous>(found);
  }
  return std::optional<Rendezvous>();
}

}  // namespace quarry
