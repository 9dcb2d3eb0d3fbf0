#include "support/power_cut_disk.h"
#include "support/file_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "quarry/base/random.h"

namespace quarry::testing_util {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSectorBytes = 512;

bool HoldsNothing(std::string_view name) { return name == "LOCK" || name == "IDENTITY"; }

std::vector<std::byte> ReadWhole(const std::string& path) {
  EXPECT_TRUE(std::filesystem::is_regular_file(path)) << path;
  const std::string text = FileText(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

PowerCutDisk::PowerCutDisk(const std::string& root) : root_(fs::path(root).lexically_normal().string()) {
  MutexLock lock(mutex_);
  inodes_.resize(1);  // kNoNode
  std::map<std::pair<uint64_t, uint64_t>, Node> known;
  Load(root_, known);
}

// Files with several names are one.
PowerCutDisk::Node PowerCutDisk::Load(const std::string& path,
                                      std::map<std::pair<uint64_t, uint64_t>, Node>& known) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  const std::pair<uint64_t, uint64_t> id(info.st_dev, info.st_ino);
  if (const auto there = known.find(id); there != known.end()) return there->second;
  const Node node = known[id] = static_cast<Node>(inodes_.size());
  inodes_.push_back({.folder = S_ISDIR(info.st_mode), .path = path.substr(root_.size())});
  if (!inodes_[node].folder) {
    inodes_[node].first_bytes = inodes_[node].bytes = ReadWhole(path);
    return node;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    const Node inside = Load(entry.path().string(), known);
    inodes_[node].names[entry.path().filename().string()] = inside;
  }
  inodes_[node].first_names = inodes_[node].names;
  return node;
}

uint64_t PowerCutDisk::now() const {
  MutexLock lock(mutex_);
  return events_.size();
}

void PowerCutDisk::Write(Bytes& file, uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  file.resize(std::max<uint64_t>(file.size(), offset + bytes.size()));
  std::memcpy(file.data() + offset, bytes.data(), bytes.size());
}

PowerCutDisk::Place PowerCutDisk::PlaceOf(const std::string& path) const {
  constexpr Node kRoot = 1;
  const fs::path relative = fs::path(path).lexically_normal().lexically_relative(root_);
  if (relative.empty()) return {};  // a path that is relative to something else
  Place place{.node = kRoot};
  for (const fs::path& part : relative) {
    if (part.empty() || part == ".") continue;
    if (part == ".." || place.node == kNoNode) return {};
    place = {.folder = place.node, .name = part.string()};
    const Names& names = inodes_[place.folder].names;
    const auto found = names.find(place.name);
    if (found != names.end()) place.node = found->second;
  }
  return place;
}

PowerCutDisk::Node PowerCutDisk::Find(const std::string& path) const {
  MutexLock lock(mutex_);
  return PlaceOf(path).node;
}

uint64_t PowerCutDisk::Log(Event event) {
  events_.push_back(std::move(event));
  return events_.size() - 1;
}

void PowerCutDisk::Name(std::vector<Naming> names) {
  for (const Naming& naming : names) {
    Names& in = inodes_[naming.folder].names;
    if (naming.node == kNoNode) {
      in.erase(naming.name);
    } else {
      in[naming.name] = naming.node;
    }
  }
  const uint64_t now = ++clock_;
  Log({.kind = Event::Kind::kNames, .names = std::move(names), .began = now, .done = now});
}

PowerCutDisk::Node PowerCutDisk::Create(const std::string& path, const Perform& perform) {
  MutexLock lock(mutex_);
  const Place place = PlaceOf(path);
  if (!perform() || place.folder == kNoNode) return kNoNode;
  if (place.node != kNoNode) {
    inodes_[place.node].bytes.clear();
    const uint64_t now = ++clock_;
    Log({.kind = Event::Kind::kTruncate, .node = place.node, .began = now, .done = now});
    return place.node;
  }
  const Node node = static_cast<Node>(inodes_.size());
  inodes_.push_back({.path = path.substr(root_.size())});
  Name({{place.folder, place.name, node}});
  return node;
}

void PowerCutDisk::CreateDirectory(const std::string& path, const Perform& perform) {
  MutexLock lock(mutex_);
  const Place place = PlaceOf(path);
  if (!perform() || place.folder == kNoNode) return;
  inodes_.push_back({.folder = true, .path = path.substr(root_.size())});
  Name({{place.folder, place.name, static_cast<Node>(inodes_.size() - 1)}});
}

void PowerCutDisk::Rename(const std::string& from, const std::string& to, const Perform& perform) {
  MutexLock lock(mutex_);
  const Place old_place = PlaceOf(from), place = PlaceOf(to);
  if (!perform() || place.folder == kNoNode) return;
  EXPECT_NE(old_place.node, kNoNode) << from << " was made past the disk, and gets a name";
  if (old_place.node == kNoNode || old_place.node == place.node) return;
  Name({{place.folder, place.name, old_place.node}, {old_place.folder, old_place.name, kNoNode}});
}

void PowerCutDisk::Link(const std::string& from, const std::string& to, const Perform& perform) {
  MutexLock lock(mutex_);
  const Place old_place = PlaceOf(from), place = PlaceOf(to);
  if (!perform() || place.folder == kNoNode) return;
  EXPECT_NE(old_place.node, kNoNode) << from << " was made past the disk, and gets a name";
  if (old_place.node != kNoNode) Name({{place.folder, place.name, old_place.node}});
}

void PowerCutDisk::Remove(const std::string& path, const Perform& perform) {
  MutexLock lock(mutex_);
  const Place place = PlaceOf(path);
  if (perform() && place.node != kNoNode) Name({{place.folder, place.name, kNoNode}});
}

uint64_t PowerCutDisk::BeginWrite(Node node, uint64_t offset, std::span<const std::byte> bytes) {
  MutexLock lock(mutex_);
  return Log({.kind = Event::Kind::kWrite,
              .node = node,
              .offset = offset,
              .bytes = {bytes.begin(), bytes.end()},
              .began = ++clock_});
}

void PowerCutDisk::EndWrite(uint64_t write, uint64_t bytes) {
  MutexLock lock(mutex_);
  Event& event = events_[write];
  event.bytes.resize(std::min<uint64_t>(bytes, event.bytes.size()));
  event.done = ++clock_;
  Write(inodes_[event.node].bytes, event.offset, event.bytes);
}

void PowerCutDisk::Truncate(Node node, uint64_t bytes, const Perform& perform) {
  MutexLock lock(mutex_);
  if (!perform() || node == kNoNode) return;
  inodes_[node].bytes.resize(bytes);
  const uint64_t now = ++clock_;
  Log({.kind = Event::Kind::kTruncate, .node = node, .offset = bytes, .began = now, .done = now});
}

void PowerCutDisk::SyncFile(Node node, std::string_view path, const Perform& perform) {
  if (node == kNoNode || (ignored_ && ignored_(path, /*folder=*/false))) {
    perform();
    return;
  }
  Event event{.kind = Event::Kind::kSyncFile, .node = node};
  {
    MutexLock lock(mutex_);
    event.began = ++clock_;
  }
  if (!perform()) return;
  MutexLock lock(mutex_);
  Log(std::move(event));
}

void PowerCutDisk::SyncDirectory(const std::string& path, const Perform& perform) {
  Event event{.kind = Event::Kind::kSyncFolder, .node = Find(path)};
  if (event.node == kNoNode || (ignored_ && ignored_(path, /*folder=*/true))) {
    perform();
    return;
  }
  {
    MutexLock lock(mutex_);
    event.began = ++clock_;
  }
  if (!perform()) return;
  MutexLock lock(mutex_);
  Log(std::move(event));
}

void PowerCutDisk::Watch(const CatalogOperation& operation, const Perform& perform) {
  using Kind = CatalogOperation::Kind;
  const auto node = [&] {
    MutexLock lock(mutex_);
    return catalog_files_[operation.file];
  };
  const auto opened = [&](Node file) {
    MutexLock lock(mutex_);
    catalog_files_[operation.file] = file;
  };
  switch (operation.kind) {
    case Kind::kCreate:
      return opened(Create(operation.path, perform));
    case Kind::kReopen:
      perform();
      return opened(Find(operation.path));
    case Kind::kWrite: {
      const Node file = node();
      if (file == kNoNode) {
        perform();
        return;
      }
      const uint64_t write = BeginWrite(file, operation.offset, operation.bytes);
      return EndWrite(write, perform() ? operation.bytes.size() : 0);
    }
    case Kind::kTruncate:
      return Truncate(node(), operation.offset, perform);
    case Kind::kSyncFile:
      return SyncFile(node(), operation.path, perform);
    case Kind::kSyncDirectory:
      return SyncDirectory(operation.path, perform);
    case Kind::kCreateDirectory:
      return CreateDirectory(operation.path, perform);
    case Kind::kRename:
      return Rename(operation.path, operation.to, perform);
    case Kind::kLink:
      return Link(operation.path, operation.to, perform);
    case Kind::kRemove:
      return Remove(operation.path, perform);
    case Kind::kRead:
      perform();
  }
}

std::string PowerCutDisk::Operations(uint64_t at, uint64_t count) const {
  MutexLock lock(mutex_);
  std::string lines;
  at = std::min<uint64_t>(at, events_.size());
  for (uint64_t i = at - std::min(at, count); i < at; ++i) {
    const Event& event = events_[i];
    const std::string& path = inodes_[event.node].path;
    std::string line;
    switch (event.kind) {
      case Event::Kind::kWrite:
        line = fmt::format("write {} from {} on: {} bytes", path, event.offset, event.bytes.size());
        break;
      case Event::Kind::kTruncate:
        line = fmt::format("truncate {} to {} bytes", path, event.offset);
        break;
      case Event::Kind::kSyncFile:
      case Event::Kind::kSyncFolder:
        line = fmt::format("sync {}", path.empty() ? "/" : path);
        break;
      case Event::Kind::kNames:
        for (const Naming& naming : event.names) {
          line += fmt::format("{}{}/{}{}", line.empty() ? "" : ", ", inodes_[naming.folder].path, naming.name,
                              naming.node == kNoNode ? " goes" : " is " + inodes_[naming.node].path);
        }
        break;
    }
    lines += fmt::format("{}: {}\n", i + 1, line);
  }
  return lines;
}

std::string PowerCutDisk::Difference() const {
  MutexLock lock(mutex_);
  return DifferenceOf(1, root_);
}

std::string PowerCutDisk::DifferenceOf(Node node, const std::string& path) const {
  const Inode& inode = inodes_[node];
  if (!inode.folder) return inode.bytes == ReadWhole(path) ? "" : path + ": holds something else";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (!inode.names.contains(name) && !HoldsNothing(name)) return entry.path().string() + ": nobody made it";
  }
  for (const auto& [name, inside] : inode.names) {
    if (HoldsNothing(name)) continue;
    const std::string place = path + "/" + name;
    if (!fs::exists(place, error)) return place + ": is missing";
    if (std::string found = DifferenceOf(inside, place); !found.empty()) return found;
  }
  return "";
}

// What is on the disk at a cut: first what was synced, then what is kept of the rest.
class PowerCutDisk::Replay {
 public:
  Replay(const std::vector<Inode>& inodes, const std::vector<Event>& events, uint64_t at, uint64_t seed)
      : inodes_(inodes), events_(events), at_(at), rng_(MixSeed(seed, at)), states_(inodes.size()) {
    for (size_t i = 0; i < inodes.size(); ++i) states_[i].names = inodes[i].first_names;
    for (uint64_t i = 0; i < at; ++i) Take(i);
    KeepNames();
  }

  void WriteTo(Node node, const std::string& path) {
    State& state = states_[node];
    if (!inodes_[node].folder) {
      if (!state.path.empty()) return fs::create_hard_link(state.path, path);
      const Bytes bytes = KeptBytes(node);
      std::ofstream file(path, std::ios::binary);
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      EXPECT_TRUE(file.good()) << path;
      state.path = path;
      return;
    }
    fs::create_directory(path);
    for (const auto& [name, inside] : state.names) WriteTo(inside, path + "/" + name);
  }

 private:
  // One of the names of an event.
  struct Part {
    uint64_t event = 0;
    size_t part = 0;
    auto operator<=>(const Part&) const = default;
  };
  struct State {
    Names names;                   // that are there for good
    std::vector<Part> pending;     // of the folder
    std::vector<uint64_t> synced;  // writes and truncations
    std::vector<uint64_t> unsynced;
    std::string path;  // where it was written to
  };

  const Naming& NamingOf(const Part& part) const { return events_[part.event].names[part.part]; }
  void Apply(const Naming& naming, Names& names) const {
    if (naming.node == kNoNode) {
      names.erase(naming.name);
    } else {
      names[naming.name] = naming.node;
    }
  }

  void Take(uint64_t i) {
    const Event& event = events_[i];
    switch (event.kind) {
      case Event::Kind::kWrite:
      case Event::Kind::kTruncate:
        states_[event.node].unsynced.push_back(i);
        return;
      case Event::Kind::kSyncFile: {
        State& state = states_[event.node];
        const auto covered = [&](uint64_t write) { return events_[write].done < event.began; };
        std::ranges::copy_if(state.unsynced, std::back_inserter(state.synced), covered);
        std::erase_if(state.unsynced, covered);
        return;
      }
      case Event::Kind::kNames:
        for (size_t part = 0; part < event.names.size(); ++part) {
          states_[event.names[part].folder].pending.push_back({i, part});
        }
        return;
      case Event::Kind::kSyncFolder: {
        const std::vector<Part> parts = states_[event.node].pending;
        for (const Part& part : parts) {
          if (events_[part.event].done < event.began) Settle(part);
        }
        return;
      }
    }
  }

  // A name is there, or gone, for good. The old name of what was renamed goes with the new one, or later.
  void Settle(const Part& part) {
    State& folder = states_[NamingOf(part).folder];
    if (std::erase(folder.pending, part) == 0) return;
    Apply(NamingOf(part), folder.names);
    const std::vector<Naming>& names = events_[part.event].names;
    if (names.size() == 1) return;
    if (part.part == 1 || inodes_[names[0].node].folder) Settle({part.event, 1 - part.part});
  }

  // How much of the names is kept that are not settled.
  void KeepNames() {
    enum Way { kNone, kAll, kAsByOneJournal, kAsByFolder, kOneByOne, kWays };
    const uint64_t way = rng_.Below(kWays + 1);  // the last one twice
    const uint64_t end = rng_.Below(at_ + 1);
    std::set<Part> kept;
    for (State& folder : states_) {
      const uint64_t end_here = rng_.Below(at_ + 1);
      std::map<std::string, std::vector<Part>> by_name;
      for (const Part& part : folder.pending) {
        if (way == kAll || (way == kAsByOneJournal && part.event < end) ||
            (way == kAsByFolder && part.event < end_here)) {
          kept.insert(part);
        }
        by_name[NamingOf(part).name].push_back(part);
      }
      if (way < kOneByOne) continue;
      for (const auto& [name, parts] : by_name) {
        const auto count = static_cast<ptrdiff_t>(rng_.Below(parts.size() + 1));
        kept.insert(parts.begin(), parts.begin() + count);
      }
    }
    KeepWhatCurrentNeeds(kept);
    HoldRenamesTogether(kept);
    for (const Part& part : kept) Apply(NamingOf(part), states_[NamingOf(part).folder].names);
  }

  // RocksDB renames CURRENT to lead to a MANIFEST whose name it has not synced: it takes for granted that a
  // rename does not get ahead of what was made in the same folder before, as no file system with a journal
  // lets it.
  void KeepWhatCurrentNeeds(std::set<Part>& kept) const {
    for (const Part& part : std::vector<Part>(kept.begin(), kept.end())) {
      if (NamingOf(part).name != "CURRENT") continue;
      for (const Part& before : states_[NamingOf(part).folder].pending) {
        if (before < part && NamingOf(before).node != kNoNode) kept.insert(before);
      }
    }
  }

  void HoldRenamesTogether(std::set<Part>& kept) {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Part& part : std::vector<Part>(kept.begin(), kept.end())) {
        const std::vector<Naming>& names = events_[part.event].names;
        if (names.size() == 1 || !kept.contains(part)) continue;
        const Part other{part.event, 1 - part.part};
        const auto& pending = states_[names[other.part].folder].pending;
        const bool lost = std::ranges::count(pending, other) > 0 && !kept.contains(other);
        if (!lost || (part.part == 0 && !inodes_[names[0].node].folder)) continue;
        // With it goes what was done to the same name later.
        std::erase_if(kept, [&](const Part& later) {
          return later >= part && NamingOf(later).folder == NamingOf(part).folder &&
                 NamingOf(later).name == NamingOf(part).name;
        });
        changed = true;
      }
    }
  }

  Bytes KeptBytes(Node node) {
    const State& state = states_[node];
    Bytes bytes = inodes_[node].first_bytes;
    for (const uint64_t write : state.synced) ApplyTo(bytes, write);
    enum Way { kNone, kAll, kUpToOne, kAnyWrites, kAnySectors, kWays };
    // RocksDB opens no catalog whose MANIFEST has a hole in what was not synced: that must be torn at its end
    // alone.
    const bool torn_at_its_end = inodes_[node].path.find("/MANIFEST-") != std::string::npos;
    const uint64_t way = rng_.Below(torn_at_its_end ? uint64_t{kAnyWrites} : uint64_t{kWays});
    const uint64_t last = rng_.Below(state.unsynced.size() + 1);
    uint64_t end = bytes.size();
    for (size_t i = 0; i < state.unsynced.size(); ++i) {
      const Event& event = events_[state.unsynced[i]];
      if (event.kind == Event::Kind::kWrite) {
        end = std::max<uint64_t>(end, event.offset + event.bytes.size());
      }
      const bool whole =
          way == kAll || (way == kUpToOne && i < last) || (way == kAnyWrites && rng_.Below(2) == 0);
      const bool torn = way == kAnySectors || (way == kUpToOne && i == last);
      if (whole || (torn && event.kind == Event::Kind::kTruncate && rng_.Below(2) == 0)) {
        ApplyTo(bytes, state.unsynced[i]);
        if (event.kind == Event::Kind::kTruncate) end = bytes.size();
      } else if (torn && event.kind == Event::Kind::kWrite) {
        Tear(event, torn_at_its_end, bytes);
      }
    }
    if (way != kAll && !torn_at_its_end && rng_.Below(4) == 0 && end > bytes.size()) bytes.resize(end);
    return bytes;
  }

  void ApplyTo(Bytes& bytes, uint64_t write) const {
    const Event& event = events_[write];
    if (event.kind == Event::Kind::kTruncate) {
      bytes.resize(event.offset);
    } else {
      Write(bytes, event.offset, event.bytes);
    }
  }

  void Tear(const Event& event, bool at_its_end, Bytes& bytes) {
    const uint64_t end = event.offset + event.bytes.size();
    for (uint64_t at = event.offset; at < end;) {
      const uint64_t next = std::min(end, (at / kSectorBytes + 1) * kSectorBytes);
      const bool kept = rng_.Below(2) == 0;
      if (kept) Write(bytes, at, std::span(event.bytes).subspan(at - event.offset, next - at));
      if (!kept && at_its_end) return;
      at = next;
    }
  }

  const std::vector<Inode>& inodes_;
  const std::vector<Event>& events_;
  const uint64_t at_;
  Rng rng_;
  std::vector<State> states_;
};

void PowerCutDisk::Build(uint64_t at, uint64_t seed, const std::string& to) const {
  MutexLock lock(mutex_);
  Replay(inodes_, events_, std::min<uint64_t>(at, events_.size()), seed).WriteTo(1, to);
}

// Writes are logged when they are submitted, and end when their completion is handed out.
class PowerCutBackend::Port final : public IoPort {
 public:
  Port(PowerCutBackend& backend, std::unique_ptr<IoPort> inner)
      : backend_(backend), inner_(std::move(inner)) {}

  Status Submit(std::span<const RawRequest> requests) override {
    for (const RawRequest& request : requests) {
      if (request.kind != RawRequest::Kind::kWrite) continue;
      const PowerCutDisk::Node node = backend_.NodeOf(request.descriptor);
      if (node == PowerCutDisk::kNoNode) continue;
      writes_[request.user_data] =
          backend_.disk_.BeginWrite(node, request.offset, {request.buffer, request.bytes});
    }
    return inner_->Submit(requests);
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    QUARRY_TRY(const size_t count, inner_->Wait(count_min, out));
    for (const RawCompletion& completion : out.first(count)) {
      const auto write = writes_.find(completion.user_data);
      if (write == writes_.end()) continue;
      backend_.disk_.EndWrite(write->second, static_cast<uint64_t>(std::max(completion.result, 0)));
      writes_.erase(write);
    }
    return count;
  }

 private:
  PowerCutBackend& backend_;
  const std::unique_ptr<IoPort> inner_;
  std::unordered_map<uint64_t, uint64_t> writes_;  // by user_data
};

PowerCutDisk::Node PowerCutBackend::NodeOf(int descriptor) {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(descriptor);
  return found == nodes_.end() ? PowerCutDisk::kNoNode : found->second;
}

Result<std::unique_ptr<IoPort>> PowerCutBackend::NewPort(unsigned depth) {
  QUARRY_TRY(std::unique_ptr<IoPort> port, inner().NewPort(depth));
  return std::unique_ptr<IoPort>(std::make_unique<Port>(*this, std::move(port)));
}

Result<File> PowerCutBackend::Open(const std::string& path, OpenMode mode) {
  const bool create = mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect;
  Result<File> file = Status(Code::kInternal, "not opened");
  const auto open = [&] {
    file = inner().Open(path, mode);
    return file.ok();
  };
  PowerCutDisk::Node node = PowerCutDisk::kNoNode;
  if (create) {
    node = disk_.Create(path, open);
  } else if (open()) {
    node = disk_.Find(path);
  }
  if (!file.ok()) return file;
  MutexLock lock(mutex_);
  nodes_[file->descriptor()] = node;
  return file;
}

Status PowerCutBackend::WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) {
  const PowerCutDisk::Node node = NodeOf(file.descriptor());
  if (node == PowerCutDisk::kNoNode) return inner().WriteAt(file, offset, bytes);
  const uint64_t write = disk_.BeginWrite(node, offset, bytes);
  Status status = inner().WriteAt(file, offset, bytes);
  disk_.EndWrite(write, status.ok() ? bytes.size() : 0);
  return status;
}

namespace {

// Runs `record` with what performs `work`; the Status of that.
template <typename Record, typename Work>
Status Recorded(const Record& record, const Work& work) {
  Status status;
  record([&] {
    status = work();
    return status.ok();
  });
  return status;
}

}  // namespace

Status PowerCutBackend::Truncate(const File& file, uint64_t bytes) {
  const PowerCutDisk::Node node = NodeOf(file.descriptor());
  return Recorded([&](const auto& perform) { disk_.Truncate(node, bytes, perform); },
                  [&] { return inner().Truncate(file, bytes); });
}

Status PowerCutBackend::SyncFile(const File& file) {
  const PowerCutDisk::Node node = NodeOf(file.descriptor());
  return Recorded([&](const auto& perform) { disk_.SyncFile(node, file.path(), perform); },
                  [&] { return inner().SyncFile(file); });
}

Status PowerCutBackend::SyncDirectory(const std::string& path) {
  return Recorded([&](const auto& perform) { disk_.SyncDirectory(path, perform); },
                  [&] { return inner().SyncDirectory(path); });
}

Status PowerCutBackend::CreateDirectory(const std::string& path) {
  return Recorded([&](const auto& perform) { disk_.CreateDirectory(path, perform); },
                  [&] { return inner().CreateDirectory(path); });
}

Status PowerCutBackend::Rename(const std::string& from, const std::string& to) {
  return Recorded([&](const auto& perform) { disk_.Rename(from, to, perform); },
                  [&] { return inner().Rename(from, to); });
}

Status PowerCutBackend::Link(const std::string& from, const std::string& to) {
  return Recorded([&](const auto& perform) { disk_.Link(from, to, perform); },
                  [&] { return inner().Link(from, to); });
}

Status PowerCutBackend::Remove(const std::string& path) {
  return Recorded([&](const auto& perform) { disk_.Remove(path, perform); },
                  [&] { return inner().Remove(path); });
}

}  // namespace quarry::testing_util
