#include "quarry/storage/training_state.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/wire.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/record_names.h"
#include "quarry/storage/run_tables.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kState = "state";

// By number: the names of runs are their users', and a server's clients', and stay in the manifest.
std::string FileOf(uint64_t number) { return fmt::format("training/{}.qts", number); }

// Behind all that are named. Files of earlier versions, NAME-GENERATION.qts, have no number.
uint64_t NextNumber(const Manifest& manifest) {
  uint64_t last = 0;
  for (const TrainingRecord& record : manifest.trainings) {
    const std::string number = fs::path(record.file).stem();
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error == std::errc() && end == number.data() + number.size()) last = std::max(last, value);
  }
  return last + 1;
}

// The file's bytes. kAlreadyExists: there is one of this name, and it is left alone.
Result<uint64_t> WriteState(Store& store, const std::string& path, const TrainingRecord& record,
                            std::span<const std::byte> state) {
  QUARRY_TRY(const std::unique_ptr<DataFileWriter> writer, DataFileWriter::Create(store.backend(), path));
  writer->BeginSection(kState, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer->Append(state));
  QUARRY_RETURN_IF_ERROR(writer->EndSection());
  return writer->Finish({.kind = FileKind::kTraining,
                         .database_id = store.manifest()->database_id,
                         .generation = record.generation,
                         .row_count = state.size()});
}

// Writes the state to a file of its own, and tells the record of it. Never to one that is there: another
// run's that is being saved, or one whose commit failed, which may be named all the same until the database
// is opened anew.
Status WriteNewFile(Store& store, std::span<const std::byte> state, TrainingRecord& record) {
  for (uint64_t number = NextNumber(*store.manifest());; ++number) {
    record.file = FileOf(number);
    const std::string path = store.path() + "/" + record.file;
    const Result<uint64_t> written = WriteState(store, path, record, state);
    if (written.ok()) {
      record.file_bytes = *written;
      return Status::Ok();
    }
    if (written.status().code() == Code::kAlreadyExists) continue;
    Discard(store.backend(), path);
    return written.status();
  }
}

class StoredTrainingStates final : public TrainingStates {
 public:
  explicit StoredTrainingStates(Store& store) : store_(store) {}

  const std::string& path() const override { return store_.path(); }
  Result<TrainingRecord> Find(std::string_view name) override {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const TrainingRecord* const record = manifest->FindTraining(name);
    if (record == nullptr) return NoTraining(store_, name);
    return *record;
  }
  Result<std::vector<std::byte>> Read(std::string_view name) override {
    return ReadTrainingState(store_, name);
  }
  Status Save(const TrainingCheckpoint& checkpoint) override {
    return CheckpointTraining(store_, checkpoint,
                              [this](const ManifestChange& change) { return store_.UpdateManifest(change); });
  }

 private:
  Store& store_;
};

}  // namespace

std::unique_ptr<TrainingStates> TrainingStatesOf(Store& store) {
  return std::make_unique<StoredTrainingStates>(store);
}

Status CheckTrainingName(std::string_view name) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  if (!name.empty() && name.find_first_not_of(kCharacters) == std::string_view::npos) return Status::Ok();
  return MakeStatus(Code::kUsage, "\"{}\" is no name of a training run: letters, digits, - and _", name);
}

Status NoTraining(const Store& store, std::string_view name) {
  return MakeStatus(Code::kNotFound, "{}: {}", store.path(),
                    ThereIsNo("checkpoint of a training run", name, "runs", store.manifest()->trainings));
}

Status CheckpointTraining(Store& store, const TrainingCheckpoint& checkpoint, const ManifestCommit& commit) {
  QUARRY_RETURN_IF_ERROR(CheckTrainingName(checkpoint.name));
  if (checkpoint.config.size() > wire::kConfigBytesMax) {
    return MakeStatus(
        Code::kUsage, "run \"{}\": what it was started with is a text of {}, and at most {} are kept",
        checkpoint.name, FormatBytes(checkpoint.config.size()), FormatBytes(wire::kConfigBytesMax));
  }
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  const std::shared_ptr<const Manifest> newest = store.manifest();
  const TrainingRecord* const before = newest->FindTraining(checkpoint.name);
  TrainingRecord record{.name = std::string(checkpoint.name),
                        .generation = before == nullptr ? 1 : before->generation + 1,
                        .settings = std::string(checkpoint.settings),
                        .timestamp = checkpoint.timestamp,
                        .created_utc = UtcNow(),
                        .config = std::string(checkpoint.config)};
  QUARRY_RETURN_IF_ERROR(EnsureSyncedDirectory(store.backend(), store.path() + "/training"));
  QUARRY_RETURN_IF_ERROR(WriteNewFile(store, checkpoint.state, record));
  KillPoint("training: state written, not named");
  // A commit that failed may have happened: then the file stays, and the next open knows.
  QUARRY_RETURN_IF_ERROR(commit([&](Manifest& manifest) {
    std::erase_if(manifest.trainings, [&](const TrainingRecord& old) { return old.name == record.name; });
    manifest.trainings.push_back(record);
    return Status::Ok();
  }));
  KillPoint("training: named, old state there");
  if (before != nullptr) Discard(store.backend(), store.path() + "/" + before->file);
  return Status::Ok();
}

Result<std::vector<std::byte>> ReadTrainingState(Store& store, std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TrainingRecord* const record = manifest->FindTraining(name);
  if (record == nullptr) return NoTraining(store, name);
  QUARRY_TRY(const DataFile data, OpenDataFile(store.backend(), store.path() + "/" + record->file,
                                               {.kind = FileKind::kTraining,
                                                .database_id = manifest->database_id,
                                                .generation = record->generation,
                                                .file_bytes = record->file_bytes}));
  QUARRY_TRY(const Section section, data.Find(kState, data.superblock.row_count));
  QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(store.backend(), data, section));
  std::vector<std::byte> state(section.bytes);
  QUARRY_RETURN_IF_ERROR(LoadPages(store.backend(), data, section, checksums, state));
  return state;
}

Status DropTraining(Store& store, std::string_view name) {
  const std::shared_ptr<const Manifest> newest = store.manifest();
  const TrainingRecord* const record = newest->FindTraining(name);
  if (record == nullptr) return NoTraining(store, name);
  std::vector<std::string> gone;
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    gone = {record->file};
    std::erase_if(manifest.trainings, [&](const TrainingRecord& old) { return old.name == name; });
    // A run that has not ended keeps its best epoch's vectors beside the last ones. The last ones stay, as tables do.
    for (EmbeddingRecord& table : manifest.embeddings) {
      if (!IsTableOfRun(table.name, name) || table.kept_map_file.empty()) continue;
      if (table.kept_map_file != table.map_file) gone.push_back(table.kept_map_file);
      table.kept_map_file.clear();
      table.kept_map_generation = 0;
      table.kept_timestamp = 0;
    }
    return Status::Ok();
  }));
  for (const std::string& file : gone) Discard(store.backend(), store.path() + "/" + file);
  return Status::Ok();
}

}  // namespace quarry
